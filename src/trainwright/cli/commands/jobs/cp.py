"""`trainwright cp`: copies files from the pods of a job to this machine."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import click

from trainwright.cli.console import Console, plain_text
from trainwright.cli.errors import CommandError
from trainwright.cli.follow.private_files import format_size
from trainwright.cli.jobs.arguments import complete_jobs
from trainwright.cli.jobs.ranks import RankPod, rank_pods, select_rank
from trainwright.cli.jobs.references import FoundJob, find_job, list_jobs
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cluster.embedded import PodFile, pod_files


@dataclass(frozen=True, slots=True)
class Source:
    """`JOB:PATH`, `JOB:RANK:PATH` or, as in kubectl, `POD:PATH`."""

    job: str
    rank: str | None
    path: str


def read_source(text: str) -> Source:
    job, _, rest = text.partition(":")
    rank, colon, path = rest.partition(":")
    source = Source(job, rank, path) if colon and "/" not in rank else Source(job, None, rest)
    if not source.job or not source.path or source.rank == "":
        raise click.BadParameter(
            f"{text!r} is not a file of a job: write JOB:PATH or JOB:RANK:PATH, such as digits:worker-0:/tmp/model.pt; "
            "files are copied from pods only"
        )
    return source


@click.command(name="cp")
@click.argument("source", type=read_source, metavar="JOB[:RANK]:PATH", shell_complete=complete_jobs)
@click.argument("destination", type=click.Path(path_type=Path), metavar="DEST")
@cluster_command
def command(session: Session, source: Source, destination: Path) -> None:
    """Copy a file or a directory from the pods of a job.

    It finds private files, files in volumes, and everything that a running pod sees; of finished pods as long as the
    job exists. A relative PATH begins in the working directory of the container. RANK may be omitted if one rank has
    the file. DEST is a file or a directory.

    Only on the embedded cluster; elsewhere use `kubectl cp`.
    """
    job, pods = _find(session, source)
    if session.target.data is None:
        name = pods[0].name if len(pods) == 1 else "POD"
        raise CommandError(
            "cp works on the embedded cluster only: on this one use "
            f"`{session.target.kubectl} cp {job.namespace}/{name}:{source.path} {destination}`"
        )
    pod, files = _files(job, pods, source)
    # As cp does: into a directory that exists, or under the new name.
    base = destination / (Path(source.path).name or "root") if destination.is_dir() else destination
    console = Console.of()
    for file in files:
        target = base / file.relative if file.relative else base
        name = f"{pod.rank}:{file.path}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.source, target)
        except shutil.SameFileError:
            # Pods write to the directories of this machine: the file is there already.
            console.print(plain_text(f"{name} is {target} itself"))
            continue
        except OSError as error:
            raise CommandError(f"failed to copy {name} to {target}: {error.strerror or error}") from error
        console.print(plain_text(f"{name} copied to {target} ({format_size(target.stat().st_size)})"))


def _find(session: Session, source: Source) -> tuple[FoundJob, list[RankPod]]:
    """The job and the pods of the rank; of the pod if the user named one."""
    if source.rank is None:
        for job in list_jobs(session):
            if source.job.startswith(f"{job.name}-"):
                pods = [pod for pod in rank_pods(session, job) if pod.name == source.job]
                if pods:
                    return job, pods
    job = find_job(session, [source.job])
    return job, select_rank(rank_pods(session, job), source.rank)


def _files(job: FoundJob, pods: list[RankPod], source: Source) -> tuple[RankPod, list[PodFile]]:
    """The files of the last pod of one rank."""
    found = {}
    for pod in pods:
        if pod.record and (files := pod_files(pod.record, source.path)):
            found[pod.rank] = (pod, files)
    if not found:
        raise CommandError(_not_found(job, pods, source))
    places = {tuple(file.source for file in files) for _, files in found.values()}
    if len(places) > 1:
        ranks = ", ".join(found)
        raise CommandError(
            f"several ranks have {source.path}: choose one of {ranks} with {job.name}:RANK:{source.path}"
        )
    return next(iter(found.values()))


def _not_found(job: FoundJob, pods: list[RankPod], source: Source) -> str:
    files = [f"{pod.rank}:{file.path}" for pod in pods if pod.record for file in pod.record.private_files]
    known = f"private files: {', '.join(files[:5])}{', …' if len(files) > 5 else ''}" if files else "no private files"
    return f"{job.reference} has no file {source.path} in its pods ({known})"
