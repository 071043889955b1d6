"""A name that the job needs belongs to another object: the job waits, and an event names the object.

The engine finds conflicts among the objects that it observes; the operator, when a create is refused, those with
objects that have no label of the job. Both use the texts of this module.
"""

from trainwright.engine.builder import PlanBuilder
from trainwright.engine.facts import Facts
from trainwright.engine.plan import JobEvent
from trainwright.objects.metadata import ObjectMeta


def wait_for(facts: Facts, builder: PlanBuilder, kind: str, blocker: ObjectMeta) -> None:
    job = facts.job
    builder.requeue_soon()
    if not is_temporary(blocker, job.kind.name, job.name):
        builder.add_standing_event(conflict(blocker, kind, job=f"{job.kind.name} {job.name}"))


def is_temporary(blocker: ObjectMeta, job_kind: str, job_name: str) -> bool:
    """True if the object is being deleted, or belongs to a predecessor of the job and is garbage collected with it."""
    owner = blocker.controller
    return blocker.terminating or (owner is not None and (owner.kind, owner.name) == (job_kind, job_name))


def conflict(blocker: ObjectMeta, kind: str, *, job: str) -> JobEvent:
    """`job` is its kind and name. Reason and first words are those of upstream's MPIJobs; its other kinds report only
    that the name exists."""
    owner = blocker.controller
    manager = f"{owner.kind} {owner.name}" if owner else "nobody"
    return JobEvent(
        "Warning",
        "ErrResourceExists",
        f'Resource "{blocker.name}" of Kind "{kind}" already exists and is not managed by {job} but by {manager}: '
        "delete it, or give the job another name",
        standing=True,
    )
