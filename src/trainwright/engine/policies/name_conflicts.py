"""A name that the job needs is somebody else's. We never fight over it: we wait, and say who is in the way.

The engine finds out from what it observes; the operator, when it is refused, about objects without our labels, which
no watch of ours shows. Both tell it in the words of this module.
"""

from trainwright.engine.draft import Draft
from trainwright.engine.plan import JobEvent
from trainwright.objects.metadata import ObjectMeta


def wait_for(draft: Draft, kind: str, blocker: ObjectMeta) -> None:
    job = draft.job
    draft.look_again()
    if not goes_by_itself(blocker, job.kind.name, job.name):
        draft.add_notice(taken(blocker, kind, job=f"{job.kind.name} {job.name}"))


def goes_by_itself(blocker: ObjectMeta, job_kind: str, job_name: str) -> bool:
    """Whether it is being deleted, or belongs to a predecessor of the job, with which garbage collection removes it."""
    owner = blocker.controller
    return blocker.terminating or (owner is not None and (owner.kind, owner.name) == (job_kind, job_name))


def taken(blocker: ObjectMeta, kind: str, *, job: str) -> JobEvent:
    """`job` is its kind and name. Reason and first words are those of upstream's MPIJobs; its other kinds say nothing
    but that the name exists."""
    owner = blocker.controller
    manager = f"{owner.kind} {owner.name}" if owner else "nobody"
    return JobEvent(
        "Warning",
        "ErrResourceExists",
        f'Resource "{blocker.name}" of Kind "{kind}" already exists and is not managed by {job} but by {manager}: '
        "delete it, or give the job another name",
        standing=True,
    )
