"""The termination of one container: preStop hook, SIGTERM when its turn has come, SIGKILL when the time is over.

Pure: the supervisor carries out what `next_step` says. As the kubelet does it: the hook's time is part of the grace
period, and a container always has a moment between the two signals. Standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Sequence

MINIMUM_SECONDS = 2.0
"""Between SIGTERM and SIGKILL if hook or turn used up the grace period."""

WAIT, HOOK, TERM, KILL = "wait", "hook", "term", "kill"


class Termination:
    def __init__(self, now: float, grace: float, *, hook: bool) -> None:
        self.deadline = now + grace
        """End of the grace period, in monotonic seconds."""
        self.kill_at: float | None = None
        """When SIGKILL follows, once SIGTERM has been sent."""
        self.waits_for_commands = False
        """The program gets SIGTERM after the commands that were started in its container have ended."""
        self._has_waited = False
        self._hook_is_due = hook and grace > 0
        self._hook_runs = False
        self._killed = False

    def shorten(self, deadline: float) -> None:
        """A later request may have a shorter grace period."""
        self.deadline = min(self.deadline, deadline)
        if self.kill_at is not None:
            self.kill_at = min(self.kill_at, self.deadline)

    def hook_ended(self) -> None:
        self._hook_runs = False

    def next_step(self, now: float, *, its_turn: bool) -> str:
        """Every step but WAIT is returned once. The caller runs the hook until `deadline` at most."""
        if self._hook_is_due:
            self._hook_is_due, self._hook_runs = False, True
            return HOOK
        if self.kill_at is None:
            if now < self.deadline and (self._hook_runs or not its_turn):
                self._has_waited = True
                return WAIT
            self.kill_at = max(self.deadline, now + MINIMUM_SECONDS) if self._has_waited else self.deadline
            return TERM
        if now >= self.kill_at and not self._killed:
            self._killed = True
            return KILL
        return WAIT

    @property
    def next_at(self) -> float | None:
        """When time alone leads to the next step."""
        return None if self._killed else self.deadline if self.kill_at is None else self.kill_at


def turns(inits: Sequence[tuple[bool, bool]], *, mains_running: bool) -> list[bool]:
    """Which init containers may get SIGTERM when a pod ends: sidecars after the main containers, the last one first.

    Each init container is `(sidecar, running)`, in the order of the spec.
    """
    found = []
    free = not mains_running
    for sidecar, running in reversed(inits):
        found.append(free or not sidecar)
        free = free and not running
    return found[::-1]
