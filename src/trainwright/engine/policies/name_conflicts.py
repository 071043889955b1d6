"""Name conflicts: a name that the job needs is taken by another object. The job waits, and an event names the object.

The engine finds conflicts with objects that it observes. The operator finds those with objects that lack the job's
label, when it creates a child.
"""

from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan import JobEvent
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.objects.metadata import ObjectMeta


def wait_for(facts: Facts, builder: PlanBuilder, kind: str, blocker: ObjectMeta) -> None:
    job = facts.job
    builder.requeue_soon()
    if not is_temporary(blocker, job.kind.name, job.name):
        builder.add_event(conflict(blocker, kind, job=f"{job.kind.name} {job.name}"))


def is_temporary(blocker: ObjectMeta, job_kind: str, job_name: str) -> bool:
    """True if the object is terminating, or belongs to a former job of the same name and is garbage collected."""
    owner = blocker.controller
    return blocker.terminating or (owner is not None and (owner.kind, owner.name) == (job_kind, job_name))


def conflict(blocker: ObjectMeta, kind: str, *, job: str) -> JobEvent:
    """`job` is the kind and name of the job. Reason and message begin like upstream's for MPIJobs."""
    owner = blocker.controller
    manager = f" but by {owner.kind} {owner.name}" if owner else ""
    return JobEvent(
        "Warning",
        "ErrResourceExists",
        f'Resource "{blocker.name}" of Kind "{kind}" already exists and is not managed by {job}{manager}: '
        "delete it, or give the job another name",
        standing=True,
    )
