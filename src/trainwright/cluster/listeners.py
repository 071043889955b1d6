"""Who listens on a TCP port of this machine, so that a port that is taken can be named with its owner."""

from pathlib import Path

_PROC = Path("/proc")
_LISTEN = "0A"


def port_holder(port: int) -> str | None:
    """`NAME (pid N)` of the process that listens on the port, if we may see it."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for process in _PROC.iterdir():
        if process.name.isdecimal() and _has_one_of(process, sockets):
            try:
                name = (process / "comm").read_text().strip()
            except OSError:
                continue
            return f"{name} (pid {process.name})"
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (_PROC / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _has_one_of(process: Path, sockets: set[str]) -> bool:
    try:
        return any(str(descriptor.readlink()) in sockets for descriptor in (process / "fd").iterdir())
    except OSError:  # it has ended, or is another user's
        return False
