"""The identity of a process: a pid may be reused, but pid, start time and boot id together are unique."""

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
        """True while exactly this process runs."""
        return identify(self.pid) == self


def stat_fields(pid: str) -> list[str]:
    """What the kernel says about a process, or about this one, `self`, from its state on."""
    text = (_PROC / pid / "stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()  # the name before it may contain blanks and brackets


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this pid now; None for a zombie."""
    try:
        fields = stat_fields(str(pid))
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, start_ticks = fields[0], int(fields[19])
    if state in {"Z", "X"}:
        return None
    return ProcessIdentity(pid, start_ticks, (_PROC / "sys/kernel/random/boot_id").read_text().strip())
