"""What one look at a job decided. The operator applies it in this order: status, then children, then events.

If the status write conflicts, the rest is dropped and the job is looked at again. Only where the status says nothing
that the children depend on may they come first.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from trainwright.objects import Object
from trainwright.objects.resources import Resource


@dataclass(frozen=True, slots=True)
class Delete:
    """A child that shall go, and no other of the same name: the uid is a precondition."""

    resource: Resource
    name: str
    uid: str
    force: bool = False
    """Without grace and without waiting for its node: for what can no longer end by itself."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A child that shall change, and no other of the same name: a merge patch with the uid as precondition.

    A body that names `metadata.resourceVersion` applies to that state of the child alone.
    """

    resource: Resource
    name: str
    uid: str
    body: Object


class Transition(StrEnum):
    """A step in a job's life that operators count. The values are those of upstream's counters."""

    CREATED = "created"
    SUCCESSFUL = "successful"
    FAILED = "failed"
    RESTARTED = "restarted"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something to tell about the job. `type` is Normal or Warning. `standing`: it says how things are, not what has
    happened, so that to say it again is to say nothing new."""

    type: str
    reason: str
    message: str
    standing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    status: Object | None = None
    """The whole new status, or None: the one that was observed stands."""
    status_follows: bool = False
    """Nothing in the status matters to the children, and there are no events: the children may come first, and the
    status with the next look."""
    creates: tuple[Object, ...] = ()
    """Children to create, those of the deciding role first."""
    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    transitions: tuple[Transition, ...] = ()
    """What the status makes true. Whoever writes it counts them; nobody else ever does."""
    events: tuple[JobEvent, ...] = ()
    """They tell of a change that this plan makes, so each is emitted exactly when the plan has been applied."""
    notices: tuple[JobEvent, ...] = ()
    """They tell how things are (an image that cannot be pulled, a name that is taken), in every plan as long as it is
    so. Who applies plans emits each once and need not remember it beyond its own life."""
    wake_at: datetime | None = None
    """The earliest moment at which time alone changes the answer."""
    delete_job: bool = False

    @property
    def empty(self) -> bool:
        """Nothing to write: the job is as it should be until something changes or `wake_at` comes."""
        changes_children = self.creates or self.deletes or self.patches
        return not (self.status is not None or changes_children or self.events or self.delete_job)
