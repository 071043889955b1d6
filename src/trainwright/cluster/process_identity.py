"""Which process a pid means: a number is used again, a number with its start time and the boot it began in is not."""

from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    pid: int
    start_ticks: int
    boot_id: str

    @property
    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this pid now; a zombie has ended and is none."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may contain anything, blanks and brackets too
    state, start_ticks = fields[0], int(fields[19])
    if state in {"Z", "X"}:
        return None
    return ProcessIdentity(pid, start_ticks, (_PROC / "sys/kernel/random/boot_id").read_text().strip())
