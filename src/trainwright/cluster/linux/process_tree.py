"""What the kernel does for a process when its parent or its descendants end."""

from __future__ import annotations

from trainwright.cluster.linux.mounts import check, libc

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(signal_number: int) -> None:
    """The kernel forgets it when the process gets other ids or enters a user namespace."""
    check(libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "ask for a signal at the parent's end")


def become_subreaper() -> None:
    """Orphaned descendants become children of this process."""
    check(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper of orphans")
