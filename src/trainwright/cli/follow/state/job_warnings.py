"""What `run` warns about while it follows a job: Warning events, and containers that wait for something missing."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwright.cli.jobs.pods.pod_states import NORMAL_REASONS, PERMANENT_REASONS, waiting_reason
from trainwright.cli.output.console import plain_text
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod, Waiting
from trainwright.objects.paths import value_at

_TRANSIENT_REASONS = frozenset({"FailedScheduling", "Unschedulable"})
"""Reasons of warnings that are normal for a moment, while volumes are bound; they are shown only if they last."""
_TRANSIENT_SECONDS = 3.0
_HARMLESS_REASONS = frozenset({"UnknownImage"})
"""Reasons of warnings about what is usual here: most manifests name an image that only clusters have."""
_EXPECTED_REASONS = NORMAL_REASONS | PERMANENT_REASONS | {"CrashLoopBackOff"}
"""Reasons of a waiting container that need no warning of their own."""
_WAITING_SECONDS = 1.0
"""Its events usually say the same: they are awaited so long."""
_RESTART_EVENT = re.compile(
    r"Error pod \S+ container \S+ (?:exitCode: |waiting message: back-off )|Back-off restarting failed container "
)
"""Events of the operator and the node about a container that has failed and waits for its next start."""
_GROUP_RESTART = re.compile(r"job (?P<job>\S+) is restarting all its replicas because (?P<pod>\S+) (?P<outcome>.+)\.")
_DIAGNOSED = "FailureDiagnosed"
"""The operator's event about the failure of a job."""


@dataclass(frozen=True, slots=True)
class _Warning:
    uid: str
    reason: str
    message: str
    at: float


class JobWarnings:
    """Returns every message once, whether an event or a container's state said it first."""

    def __init__(self, job_uid: str) -> None:
        self._job_uid = job_uid
        self._events: dict[str, _Warning] = {}
        self._shown: set[str] = set()
        self._notes: list[str] = []
        self._waiting_since: dict[str, float] = {}

    def add(self, event: Object, at: float) -> None:
        uid = str(value_at(event, "involvedObject", "uid", default=""))
        key = str(event["metadata"].get("uid") or event["metadata"].get("name"))
        self._events[key] = _Warning(uid, str(event.get("reason", "")), str(event.get("message", "")), at)

    def new_events(self, names: Mapping[str, str], at: float, *, all_scheduled: bool) -> list[str]:
        """One line for each new warning about the objects of `names`, which are named by uid."""
        fresh = []
        # Pods first, because the events of a job repeat those of its pods.
        for key, warning in sorted(self._events.items(), key=lambda item: item[1].uid == self._job_uid):
            transient = warning.reason in _TRANSIENT_REASONS
            if warning.uid not in names or (transient and at - warning.at < _TRANSIENT_SECONDS):
                continue
            del self._events[key]
            if transient and all_scheduled:
                continue
            if warning.reason == _DIAGNOSED or _RESTART_EVENT.match(warning.message):
                continue  # the phases, and later the result, say it better
            if self._was_shown(warning):
                continue
            self._shown.add(warning.message or warning.reason)
            if warning.reason in _HARMLESS_REASONS:
                self._notes.append(plain_text(warning.message).partition(". ")[0])
            else:
                fresh.append(f"{names[warning.uid]}: {_text(warning)}")
        return fresh

    def new_notes(self) -> list[str]:
        """The first sentences of those events that `new_events` found and that are no reason to worry."""
        notes, self._notes = self._notes, []
        return notes

    def new_waiting(self, pods: Iterable[tuple[str, Pod]], now: float) -> list[tuple[str, Waiting]]:
        """The labels of pods whose containers wait for something that is missing."""
        found = []
        for label, pod in pods:
            waiting, uid = waiting_reason(pod), pod.metadata.uid
            if waiting is None or waiting.reason in _EXPECTED_REASONS or not waiting.message:
                self._waiting_since.pop(uid, None)
                continue
            since = self._waiting_since.setdefault(uid, now)
            warning = _Warning(uid, waiting.reason, waiting.message, since)
            if now - since >= _WAITING_SECONDS and not self._was_shown(warning):
                self._shown.add(waiting.message)
                found.append((label, waiting))
        return found

    def _was_shown(self, warning: _Warning) -> bool:
        """True if the message was shown, also as part of another: a job's `Error pod … waiting message: X` quotes X."""
        new = warning.message or warning.reason
        return any(new == old or new.endswith(f": {old}") or old.endswith(f": {new}") for old in self._shown)


def _text(warning: _Warning) -> str:
    """The event's reason and message; about a restart of all ranks in the words of `run`."""
    if restart := _GROUP_RESTART.fullmatch(warning.message):
        rank = restart["pod"].removeprefix(f"{restart['job']}-")
        return f"{rank} {plain_text(restart['outcome'])}, so all ranks start again"
    return f"{warning.reason}: {plain_text(warning.message)}"
