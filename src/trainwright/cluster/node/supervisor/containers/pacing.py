"""When output is left in its pipe for a moment, so that a program that prints many lines costs little.

Waking up for a line takes longer than copying it. Standard library only.
"""

BATCH_SECONDS = 0.05
"""How long the output of a program that prints many lines gathers."""

_BUSY_LINES = 40
"""Lines per second from which on they are read in batches. Lines of other programs have the time of their writing."""

_LARGE_READ = 16 * 1024
"""A quarter of a pipe: a program that prints more at once would have to wait for its reader."""


class OutputPacer:
    """Counts the lines of each second."""

    def __init__(self) -> None:
        self._since = 0.0
        self._lines = 0
        self._busy = False
        self._large = False

    def count(self, lines: int, size: int, now: float) -> None:
        """To be called for every read of `size` bytes; `now` is in monotonic seconds."""
        self._large = size >= _LARGE_READ
        if now - self._since >= 1.0:
            # A gap without output ends the second before it.
            self._busy = self._lines >= _BUSY_LINES and now - self._since < 2.0
            self._since, self._lines = now, 0
        self._lines += lines

    def pause(self, now: float) -> float:
        """Seconds for which output need not be read."""
        return BATCH_SECONDS if self._busy and not self._large and now - self._since < 2.0 else 0.0
