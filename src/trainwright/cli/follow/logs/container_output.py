"""From the records of one container's log to lines, and the text of a line that the program still rewrites.

Progress bars rewrite their line with `\\r`; the node writes every state of them as a partial record. Pure.
"""

import re

from trainwright.cli.output.console import visible

_CURSOR_UP = re.compile(r"\x1b\[\d{0,4}[AF]")
_UNFINISHED_BAR = re.compile(r"(?<!\d)(?:\d|\d\d)%\||\b\d{1,15}it \[|\|\s{0,99}\d{1,15}/\? \[")
_MAX_OPEN = 256 * 1024
"""Characters of an unfinished line that are kept; a longer one is shown in pieces."""


class ContainerOutput:
    """The output of one run of a container: standard output and standard error have unfinished lines of their own."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        self._redrawn: set[str] = set()
        self._frame = ""

    def add(self, stream: str, text: str, *, partial: bool) -> str | None:
        """The line that this record finishes; None if it finishes none."""
        if "\x1b" in text and _CURSOR_UP.search(text):
            self._redrawn.add(stream)
        joined = self._open.pop(stream, "") + text
        if partial and len(joined) < _MAX_OPEN:
            self._open[stream] = _since_last_rewrite(joined)
            return None
        if stream in self._redrawn and self._is_frame(joined):
            return None
        self._frame = ""
        return joined

    def end(self) -> list[str]:
        """At the end of the run: its unfinished lines."""
        left = [text for text in (self._frame, *self._open.values()) if visible(text) and not _is_erased(text)]
        self._open.clear()
        self._frame = ""
        return left

    @property
    def has_open_line(self) -> bool:
        return bool(self._open or self._frame)

    @property
    def live(self) -> str:
        """The text of the line that is being written; empty if there is none."""
        for text in reversed(self._open.values()):
            if shown := visible(text):
                return shown
        return visible(self._frame)

    @property
    def is_rewritten(self) -> bool:
        """Whether the unfinished line is a progress bar and not just the beginning of a line."""
        return bool(self._frame) or any("\r" in text or "\b" in text for text in self._open.values())

    def _is_frame(self, line: str) -> bool:
        """True for a line of nested progress bars: they end lines to reach the one below, and return to rewrite them.

        Only their last states are worth a line.
        """
        shown = visible(line)
        if not shown:
            return True
        if _UNFINISHED_BAR.search(shown):
            self._frame = line
            return True
        return False


def _is_erased(text: str) -> bool:
    """True if the program has overwritten its line with blanks, as tqdm does with a bar that is not to stay."""
    parts = [part for part in text.split("\r") if part]
    return len(parts) > 1 and not parts[-1].strip(" ")


def _since_last_rewrite(text: str) -> str:
    """The last state of a line: what precedes the last `\\r` with text behind it has been overwritten."""
    start = text.rfind("\r", 0, len(text.rstrip("\r\b ")))
    return text[start:] if start > 0 else text
