"""Suspends and resumes jobs: the operator deletes the pods of a suspended job and keeps everything else."""

from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.jobs.summary import finished_state
from trainwright.objects.paths import value_at


def is_suspended(job: FoundJob) -> bool:
    """Whether the spec asks for it; the pods may still be ending."""
    return bool(value_at(job.object, "spec", "runPolicy", "suspend"))


def set_suspended(session: Session, job: FoundJob, *, suspend: bool) -> bool:
    """Changes spec.runPolicy.suspend; False if it has this value already. A finished job is an error."""
    if state := finished_state(job.object):
        again = f"run it again with `trainwright run`, or delete it with `trainwright delete {job.name}{session.flags}`"
        raise CommandError(f"{job.reference} has {state.lower()} already: {again}")
    if is_suspended(job) == suspend:
        return False
    patch = {"metadata": {"uid": job.uid}, "spec": {"runPolicy": {"suspend": suspend}}}
    session.client.patch(job.kind.resource, job.name, patch, namespace=job.namespace)
    return True
