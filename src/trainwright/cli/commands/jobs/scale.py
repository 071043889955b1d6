"""`trainwright scale`: changes the number of replicas of a role."""

import click

from trainwright.api.kinds import Kind, Role
from trainwright.api.kinds.mpi import MPI
from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.references import FoundJob, find_job, job_argument
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import finished_state, role_counts
from trainwright.objects.paths import value_at


@click.command(name="scale")
@job_argument
@click.option("--replicas", type=click.IntRange(min=0), required=True, metavar="N", help="The new number of replicas.")
@click.option("--role", metavar="ROLE", help="The role to scale (default: worker).")
@cluster_command
def command(session: Session, job: tuple[str, ...], replicas: int, role: str | None) -> None:
    """Change the number of replicas of a role.

    Pods are created or deleted at once. A PyTorchJob with an elasticPolicy restarts its ranks with the new size, and
    elastic Horovod in an MPIJob follows it; in other jobs the ranks that are running keep the world size that they were
    started with.
    """
    found = find_job(session, job)
    if state := finished_state(found.object):
        raise CommandError(f"{found.reference} has {state.lower()} already: its pods are not started again")
    counts = role_counts(found.object, found.kind)
    key, scaled = _role(found, counts, role)
    if scaled.exactly is not None and replicas != scaled.exactly:
        raise CommandError(
            f"{found.kind.with_article} has exactly {scaled.exactly} {scaled.label}: it cannot be scaled"
        )
    session.announce()
    patch = {"metadata": {"uid": found.uid}, "spec": {found.kind.replicas_field: {key: {"replicas": replicas}}}}
    session.client.patch(found.kind.resource, found.name, patch, namespace=found.namespace)
    click.echo(f"{found.resource_name} scaled: {scaled.label} from {counts[key]} to {replicas}")
    if found.kind.name == MPI.name:
        click.echo(
            "Note: mpirun keeps the processes that it has started, unless the program is elastic, as with horovodrun. "
            "Started again it has as many as the option -n in the command of the launcher says: to change both, edit "
            "the manifest, or run the program with another --workers, and with --replace",
            err=True,
        )
    elif not value_at(found.object, "spec", "elasticPolicy"):
        click.echo(
            "Note: ranks that are running keep the world size that they were started with, unless their program is "
            "elastic; to start all of them with the new one: "
            f"trainwright stop {found.name}{session.flags} && trainwright resume {found.name}{session.flags}",
            err=True,
        )


def _role(job: FoundJob, counts: dict[str, int], wanted: str | None) -> tuple[str, Role]:
    """The role's key in the spec, and the role."""
    name = wanted or job.kind.scaled_role or "Worker"
    role = job.kind.role(name)
    if role is None:
        raise CommandError(f"{job.kind.with_article} has no role {name}: it has {_roles(job.kind)}")
    key = next((key for key in counts if key.lower() == role.label), None)
    if key is None:
        present = ", ".join(key.lower() for key in counts)
        raise CommandError(
            f"{job.reference} has no {role.label}, and so no template for its pods: it has {present}; "
            "choose one of them with --role"
        )
    return key, role


def _roles(kind: Kind) -> str:
    return ", ".join(role.label for role in kind.roles)
