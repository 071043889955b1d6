"""A name that the job needs is somebody else's. We never fight over it: we wait, and say who is in the way."""

from trainwright.engine.draft import Draft
from trainwright.objects.metadata import ObjectMeta


def wait_for(draft: Draft, kind: str, blocker: ObjectMeta) -> None:
    """A child of this job's predecessor goes by itself; anything else is told."""
    job, owner = draft.job, blocker.controller
    draft.look_again()
    is_predecessors = owner is not None and (owner.kind, owner.name) == (job.kind.name, job.name)
    if not blocker.terminating and not is_predecessors:
        draft.notice(
            "ErrResourceExists",
            f'Resource "{blocker.name}" of Kind "{kind}" already exists and is not managed by {job.kind.name} '
            f"{job.name}: delete it, or give the job another name",
        )
