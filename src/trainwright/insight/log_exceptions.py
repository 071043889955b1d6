"""Finds the exceptions of Python programs, and the failed processes of torchrun, in the last lines of a log."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwright.objects.kinds.container_runs import Line

MAX_LINE = 2000
"""Characters of a line that a diagnosis looks at: programs print lines of any length."""


@dataclass(frozen=True, slots=True)
class RaisedException:
    """An exception whose traceback is in a log."""

    text: tuple[str, ...]
    """Type and message, as printed: `("ValueError: boom",)`."""
    causes: tuple[tuple[str, ...], ...] = ()
    """The texts of the exceptions that led to it, the first one first."""
    at: float | None = None
    """When its traceback was written."""
    process: int | None = None
    """The global rank of the process, where torch writes it before every line."""
    of_launcher: bool = False
    """True if torchrun itself raised it."""
    first_line: int = 0
    raised_line: int = 0
    last_line: int = 0
    """Where in the log: the beginning of the traceback, the line of the exception, the end of its message."""

    @property
    def first(self) -> tuple[str, ...]:
        """The text of the exception that began the chain."""
        return self.causes[0] if self.causes else self.text

    @property
    def summary(self) -> str:
        """`RuntimeError: row 7 is not readable (caused by ValueError: invalid literal)`, in one line."""
        raised = _in_one_line(self.text)
        cause = _in_one_line(self.causes[0]) if self.causes else ""
        return f"{raised} (caused by {cause})" if cause and cause not in raised else raised


@dataclass(frozen=True, slots=True)
class FailedProcess:
    """An entry of torchrun's table of failures."""

    rank: int
    local_rank: int
    exit_code: int
    """As of a container: 137 if signal 9 killed it."""
    at: float | None = None
    """When torchrun reported it."""
    first_line: int = 0
    """Where torchrun's report begins in the log; the lines before it are the program's."""


def find_exceptions(lines: Sequence[Line]) -> list[RaisedException]:
    """In the order of the log; those of different processes may have been written at the same time.

    Exceptions that Python ignored, in destructors and shutdown hooks, are left out."""
    streams: dict[int | None, list[_Numbered]] = {}
    for number, line in enumerate(lines):
        match = _PREFIX.match(line.text)
        text = line.text[match.end() :] if match else line.text
        process = int(match["rank"]) if match else None
        streams.setdefault(process, []).append(_Numbered(number, text.rstrip(), line.at))
    found = [raised for process, stream in streams.items() for raised in _exceptions_of(stream, process)]
    return sorted(found, key=lambda raised: raised.first_line)


def find_failed_processes(lines: Sequence[Line]) -> list[FailedProcess]:
    """The processes in torchrun's table; empty if the log has none."""
    starts = [number for number, line in enumerate(lines) if _TABLE in line.text]
    if not starts:
        return []
    reports = {
        int(match["local"]): number
        for number, line in reversed(list(enumerate(lines[: starts[-1]])))
        if (match := _TABLE_REPORT.search(line.text))
    }
    begin = min(reports.values(), default=starts[-1])
    found: list[FailedProcess] = []
    rank = local_rank = 0
    for line in lines[starts[-1] :]:
        if match := _TABLE_RANK.match(line.text):
            rank, local_rank = int(match["rank"]), int(match["local"])
        elif match := _TABLE_CODE.match(line.text):
            code = int(match["code"])
            at = lines[reports[local_rank]].at if local_rank in reports else line.at
            found.append(FailedProcess(rank, local_rank, code if code >= 0 else 128 - code, at, begin))
    return found


_PREFIX = re.compile(r"\[(?:rank|default|worker)(?P<rank>\d{1,6})\]: ?")
"""torch writes `[rank1]: ` before every line of a traceback, torchrun `[default1]:` before every line if asked for."""
_HEADER = re.compile(r"(?:\s{0,40}[+|] ){0,9}\s{0,40}(?:Exception Group )?Traceback \(most recent call last\):")
_GROUP_MARK = re.compile(r"(?:\s{0,40}[|+] ){1,9}")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_IGNORED = ("Exception ignored in", "Error in atexit._run_exitfuncs", "Error in sys.excepthook")
_WITHOUT_HEADER = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_NATIVE_LOG = re.compile(
    r"[EFIW]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\*\*\* Check failure|\[[EFIW]\d{3} \d\d:\d\d:\d\d"
    r"|-{60,}$|\[[\w.-]{1,253}:\d{5,9}\] "  # Open MPI
)
_LAUNCHER_FRAME = re.compile(r'File "[^"]{0,400}/torch/distributed/(?:run|launcher/api)\.py"')
_TABLE = "multiprocessing.errors.ChildFailedError"
_TABLE_RANK = re.compile(r"\s{1,9}rank\s{1,9}: (?P<rank>\d{1,6}) \(local_rank: (?P<local>\d{1,6})\)")
_TABLE_CODE = re.compile(r"\s{1,9}exitcode\s{1,9}: (?P<code>-?\d{1,6}) \(pid")
_TABLE_REPORT = re.compile(r"failed \(exitcode: -?\d{1,6}\) local_rank: (?P<local>\d{1,6}) ")
_MAX_TEXT = 30
_MAX_SUMMARY = 300


class _Numbered(NamedTuple):
    number: int
    text: str
    at: float | None


@dataclass(slots=True)
class _Block:
    """One traceback and the text after it."""

    start: _Numbered
    raised: int = 0
    end: int = 0
    text: list[str] = field(default_factory=list)
    of_launcher: bool = False
    ignored: bool = False
    is_chained: bool = False
    """True if the block says that the next one was raised because of it."""


def _exceptions_of(stream: list[_Numbered], process: int | None) -> Iterator[RaisedException]:
    chain: list[_Block] = []
    for block in _blocks(stream):
        if not block.text:
            continue  # another traceback began in the middle of it
        chain.append(block)
        if not block.is_chained:
            if not block.ignored:
                yield _raised(chain, process)
            chain = []
    if chain:
        yield _raised(chain, process)


def _raised(chain: Sequence[_Block], process: int | None) -> RaisedException:
    *causes, last = chain
    return RaisedException(
        text=tuple(last.text),
        causes=tuple(tuple(block.text) for block in causes),
        at=chain[0].start.at,
        process=process,
        of_launcher=any(block.of_launcher for block in chain),
        first_line=chain[0].start.number,
        raised_line=last.raised,
        last_line=last.end,
    )


def _blocks(stream: list[_Numbered]) -> Iterator[_Block]:
    block: _Block | None = None
    previous = ""
    for line in stream:
        text = line.text
        if _HEADER.match(text):
            if block is not None:
                yield block
            block = _Block(line, end=line.number, ignored=previous.startswith(_IGNORED))
        elif block is None:
            if _WITHOUT_HEADER.match(text):
                yield _Block(line, raised=line.number, end=line.number, text=[text])
        elif text.startswith(_CHAINED) or _GROUP_MARK.sub("", text).startswith(_CHAINED):
            block.is_chained = True
            yield block
            block = None
        elif _NATIVE_LOG.match(text) or len(block.text) >= _MAX_TEXT or (not block.text and _is_unrelated(block, line)):
            yield block
            block = None
        else:
            _extend(block, line)
        previous = text or previous
    if block is not None:
        yield block


def _extend(block: _Block, line: _Numbered) -> None:
    text = _GROUP_MARK.sub("", line.text)
    if not block.text and (not text or text[0].isspace() or _GROUP_MARK.fullmatch(line.text + " ")):
        block.of_launcher = block.of_launcher or bool(_LAUNCHER_FRAME.search(text))
        block.end = line.number
    elif text or block.text:
        block.raised = block.raised if block.text else line.number
        block.text.append(text)
        block.end = line.number


def _is_unrelated(block: _Block, line: _Numbered) -> bool:
    """True if the traceback ended without an exception: another process wrote in between."""
    return line.number - block.start.number > 2000


def _in_one_line(text: Sequence[str]) -> str:
    """The first line of an exception; the next ones too if it announces them."""
    lines = [line.strip() for line in text if line.strip()]
    if not lines:
        return ""
    if original := _original(text):
        return _cut(f"{original} ({lines[0].partition(': ')[2].rstrip('.')})")
    summary = lines[0]
    for line in lines[1:]:
        if not summary.endswith(":") and not summary.endswith(": "):
            break
        summary = f"{summary} {line}"
    return _cut(summary)


def _original(text: Sequence[str]) -> str:
    """The exception of a DataLoader's worker, which the message of the one in the program contains."""
    after = False
    for line in text:
        if after and line and not line[0].isspace():
            return line
        after = after or line.startswith("Original Traceback (most recent call last)")
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SUMMARY else text[: _MAX_SUMMARY - 1] + "…"
