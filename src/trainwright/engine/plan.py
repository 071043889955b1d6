"""The engine's output: the changes that one reconcile of a job makes. The operator applies it in this order:
status, children, events.

If the status write conflicts, the operator drops the rest and reconciles the job again. Children may be written before
the status only if they do not depend on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainwright.objects import Object
from trainwright.objects.resources import Resource

PODS_WAVE = 2
"""Pods come last: the objects that they use are created before them."""
FOLLOWERS_WAVE = 3
"""Pods that use the other pods of their job by name, which must be its own."""


@dataclass(frozen=True, slots=True)
class Create:
    """A child to create. Its manifest is rendered when it is written: a thousand manifests need too much memory."""

    resource: Resource
    name: str
    job_field: str
    """The field of the job that an error names if the API server rejects the child."""
    render: Callable[[], Object]
    wave: int
    """The children of a wave are created after all children of earlier waves exist."""
    needed: bool = True
    """Whether its failure stops further creates: a group cannot train without all its pods."""
    with_event: bool = True
    """Whether an event is recorded after it was created."""
    shared: bool = False
    """Whether an existing object of that name is used, whatever object controls it."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A child to delete. The uid is a precondition, so that no other object of the same name is deleted."""

    resource: Resource
    name: str
    uid: str
    force: bool = False
    """Without grace period and without waiting for the kubelet."""
    with_event: bool = True
    """Whether an event is recorded after it was deleted."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of a child, with the uid as precondition.

    A body with `metadata.resourceVersion` applies only to that version of the child.
    """

    resource: Resource
    name: str
    uid: str
    body: Object


@dataclass(frozen=True, slots=True)
class Replace:
    """An update of a child whose resource the operator is not allowed to patch. `body` has the resourceVersion."""

    resource: Resource
    name: str
    body: Object


class Transition(StrEnum):
    """A transition of a job that the metrics count. The values are those of upstream's counters."""

    CREATED = "created"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event about the job; `type` is Normal or Warning.

    A `standing` event reports a state that lasts, so it is recorded once.
    """

    type: str
    reason: str
    message: str
    standing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    status: Object | None = None
    """The complete new status; None if it does not change."""
    status_follows: bool = False
    """The children do not depend on the status, and there are no events: the children may be written first, and the
    status by the next reconcile."""
    only_counts: bool = False
    """The status changes only in the numbers of pods, and there is nothing else to write: it may be written later."""
    creates: tuple[Create, ...] = ()
    """Children to create, those of the deciding role first."""
    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    replaces: tuple[Replace, ...] = ()
    transitions: tuple[Transition, ...] = ()
    """The transitions in the new status. Only the process that writes the status counts them."""
    events: tuple[JobEvent, ...] = ()
    """Events about changes of this plan, to be recorded after it was applied."""
    standing_events: tuple[JobEvent, ...] = ()
    """Events about states that last (an image that cannot be pulled, a name that is taken). Every plan repeats them,
    and the operator records each once."""
    requeue_at: datetime | None = None
    """The earliest time at which the plan changes even if no object does: a deadline, a TTL, a back-off."""
    delete_job: bool = False

    @property
    def changes_children(self) -> bool:
        return bool(self.creates or self.deletes or self.patches or self.replaces)

    @property
    def empty(self) -> bool:
        """True if there is nothing to write."""
        return not (self.status is not None or self.changes_children or self.events or self.delete_job)
