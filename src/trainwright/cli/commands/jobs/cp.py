"""`trainwright cp`: copies files from the pods of a job to this machine, and into them."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.follow.texts.private_file_lines import format_size
from trainwright.cli.jobs.pods.pod_exec import fetch, run_in_pod, send
from trainwright.cli.jobs.pods.ranks import RankPod, latest_of_each_rank, rank_pods, select_rank
from trainwright.cli.jobs.references import FoundJob, complete_jobs, find_job, list_jobs
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.output.console import Console, plain_text
from trainwright.cluster.facade import PodFile, pod_files


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
            f"{text!r} is not a file of a job: write JOB:PATH or JOB:RANK:PATH, such as digits:worker-0:/tmp/model.pt"
        )
    return source


def read_place(text: str) -> Source | Path:
    """A file of a job, or one of this machine: as in `kubectl cp` that has no colon, or begins with a dot or slash."""
    return Path(text) if ":" not in text or text.startswith((".", "/")) else read_source(text)


@click.command(name="cp")
@click.argument("source", type=read_place, metavar="SOURCE", shell_complete=complete_jobs)
@click.argument("destination", type=read_place, metavar="DEST", shell_complete=complete_jobs)
@cluster_command
def command(session: Session, source: Source | Path, destination: Source | Path) -> None:
    """Copy files from the pods of a job, or into them.

    SOURCE or DEST is JOB:PATH or JOB:RANK:PATH. The command finds private files, files in volumes, and everything that
    a running pod sees; on the embedded cluster those of finished pods too, as long as the job exists. A relative PATH
    begins in the working directory of the container.
    RANK may be omitted if one rank has the file. DEST is a file or a directory.

    Files go into running pods only. There, and on other clusters, the image needs tar, as for `kubectl cp`.
    """
    match source, destination:
        case Source(), Path():
            _copy_from(session, source, destination)
        case Path(), Source():
            _copy_into(session, source, destination)
        case _:
            raise CommandError("one of both must be a file of a job, the other one of this machine: cp JOB:PATH DEST")


def _copy_from(session: Session, source: Source, destination: Path) -> None:
    job, pods = _find(session, source)
    # As cp does: into a directory that exists, or under the new name.
    base = destination / (Path(source.path).name or "root") if destination.is_dir() else destination
    console = Console.of()
    if session.target.data is None:
        pod = _pod_with_file(session, job, pods, source)
        copied = 0
        for path, target in fetch(session, job, pod, source.path, base):
            console.print(plain_text(f"{pod.rank}:{path} copied to {target} ({format_size(target.stat().st_size)})"))
            copied += 1
        if not copied:
            console.print(f"{source.path} has no files")
        return
    pod, files = _files(job, pods, source)
    for file in files:
        target = base / file.relative if file.relative else base
        name = f"{pod.rank}:{file.path}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file.copy_to(target)
        except shutil.SameFileError:
            # Pods write to the directories of this machine: the file is there already.
            console.print(plain_text(f"{name} is {target} itself"))
            continue
        except OSError as error:
            raise CommandError(f"failed to copy {name} to {target}: {error.strerror or error}") from error
        console.print(plain_text(f"{name} copied to {target} ({format_size(target.stat().st_size)})"))


def _copy_into(session: Session, source: Path, destination: Source) -> None:
    if not source.exists():
        raise CommandError(f"{source} does not exist")
    job, pods = _find(session, destination)
    running = _running(job, pods)
    if len(running) > 1:
        ranks = ", ".join(pod.rank for pod in running)
        raise CommandError(f"choose one of {ranks} with {job.name}:RANK:{destination.path}")
    path = send(session, job, running[0], source, destination.path)
    Console.of().print(plain_text(f"{source} copied to {running[0].rank}:{path}"))


def _running(job: FoundJob, pods: list[RankPod]) -> list[RankPod]:
    found = [pod for pod in latest_of_each_rank(pods) if pod.pod and pod.pod.phase == "Running"]
    if not found:
        raise CommandError(f"{job.reference} has no running pod, and files are copied by a program that runs in it")
    return found


def _pod_with_file(session: Session, job: FoundJob, pods: list[RankPod], source: Source) -> RankPod:
    """On another cluster."""
    running = _running(job, pods)
    found = [pod for pod in running if run_in_pod(session, job, pod, "test", "-e", source.path).exit_code == 0]
    if not found:
        raise CommandError(f"{job.reference} has no file {source.path} in its running pods")
    if len(found) > 1:
        raise CommandError(_several(job, [pod.rank for pod in found], source))
    return found[0]


def _several(job: FoundJob, ranks: Iterable[str], source: Source) -> str:
    return f"several ranks have {source.path}: choose one of {', '.join(ranks)} with {job.name}:RANK:{source.path}"


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
        raise CommandError(_several(job, found, source))
    return next(iter(found.values()))


def _not_found(job: FoundJob, pods: list[RankPod], source: Source) -> str:
    files = [f"{pod.rank}:{file.path}" for pod in pods if pod.record for file in pod.record.private_files]
    known = f"private files: {', '.join(files[:5])}{', …' if len(files) > 5 else ''}" if files else "no private files"
    return f"{job.reference} has no file {source.path} in its pods ({known})"
