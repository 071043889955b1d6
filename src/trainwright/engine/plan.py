"""What one reconcile of a job decided. The operator applies it in this order: status, then children, then events.

If the status write conflicts, the rest is dropped and the job is reconciled again. Children may be written before a
status only where nothing in it matters to them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainwright.objects import Object
from trainwright.objects.resources import Resource

PODS_WAVE = 2
"""Pods come last: the objects that they use are created before them."""


@dataclass(frozen=True, slots=True)
class Create:
    """A child to create. Its manifest is rendered when it is written: a thousand of them would fill the memory."""

    resource: Resource
    name: str
    job_field: str
    """The field of the job that is to blame if the API server refuses the child."""
    render: Callable[[], Object]
    wave: int
    """Children of a wave are created when all those of earlier waves exist."""
    needed: bool = True
    """Whether its failure stops further creates: a group with a gap cannot train."""
    announced: bool = True
    """Whether an event is recorded when it was created."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A child to delete; the uid is a precondition, so that no other object of the same name is deleted."""

    resource: Resource
    name: str
    uid: str
    force: bool = False
    """Without grace period and without waiting for the kubelet."""
    announced: bool = True
    """Whether an event is recorded when it was deleted."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of a child, with the uid as precondition.

    A body that names `metadata.resourceVersion` applies to that version of the child alone.
    """

    resource: Resource
    name: str
    uid: str
    body: Object


@dataclass(frozen=True, slots=True)
class Replace:
    """An update of a child whose resource the operator may not patch; `body` holds the resourceVersion."""

    resource: Resource
    name: str
    body: Object


class Transition(StrEnum):
    """A step in a job's life that operators count. The values are those of upstream's counters."""

    CREATED = "created"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event about the job; `type` is Normal or Warning.

    A `standing` event says how things are, not what has happened: repeating it says nothing new.
    """

    type: str
    reason: str
    message: str
    standing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    status: Object | None = None
    """The whole new status, or None: the observed one stands."""
    status_follows: bool = False
    """Nothing in the status matters to the children, and there are no events: the children may be written first, and
    the status by the next reconcile."""
    creates: tuple[Create, ...] = ()
    """Children to create, those of the deciding role first."""
    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    replaces: tuple[Replace, ...] = ()
    transitions: tuple[Transition, ...] = ()
    """What the status makes true. The process that writes the status counts them, and no other."""
    events: tuple[JobEvent, ...] = ()
    """Each tells of a change that this plan makes, so it is recorded exactly when the plan has been applied."""
    standing_events: tuple[JobEvent, ...] = ()
    """Every plan repeats them while they hold (an image that cannot be pulled, a name that is taken); the operator
    records each once."""
    requeue_at: datetime | None = None
    """The earliest moment at which time alone changes the answer."""
    delete_job: bool = False

    @property
    def changes_children(self) -> bool:
        return bool(self.creates or self.deletes or self.patches or self.replaces)

    @property
    def empty(self) -> bool:
        """Nothing to write: the job is as it should be until something changes or `requeue_at` comes."""
        return not (self.status is not None or self.changes_children or self.events or self.delete_job)
