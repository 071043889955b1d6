"""Follows jobs and reports their results: the second half of `run`."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from trainwright.api.job import read_job
from trainwright.cli.errors import INTERRUPTED, TIMED_OUT
from trainwright.cli.follow.state.job_state import JobState, state_of
from trainwright.cli.follow.texts.messages import (
    EXIT_CODES,
    Suggestions,
    ended_lines,
    result_lines,
    still_running_lines,
    volume_lines,
)
from trainwright.cli.follow.texts.private_file_lines import private_file_lines
from trainwright.cli.follow.written_files import written_file_lines, written_files
from trainwright.cli.history import append, history_file, run_of
from trainwright.cli.jobs.failure import recorded_headline
from trainwright.cli.output.console import Console, plain_text
from trainwright.cli.targets import Target
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, Unreachable
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS


def follow_and_report(
    jobs: Sequence[Object],
    client: SyncClient,
    target: Target,
    console: Console,
    *,
    timeout: float | None = None,
    tail: int | None = None,
    ranks: frozenset[str] | None = None,
    remove: bool = False,
    ends_ranks: bool = False,
) -> int:
    """Follows the jobs and prints their results; returns the exit code. `remove` deletes the jobs at the end.

    `ends_ranks` ends the ranks that outlive a failed job without asking.
    `tail` and `ranks` limit the printed lines: to the last ones that exist at first, and to those of some ranks.
    """
    console.live("⠋ starting")
    states = [state_of(job, target) for job in jobs]
    # Imported here, while the pods are starting, because it takes longer than everything before.
    from trainwright.cli.follow.follower import Ending, follow_jobs

    ending = follow_jobs(states, target, console, timeout=timeout, tail=tail, ranks=ranks, asks=not remove)
    # A stopped job stays: `stop` keeps it and its files.
    removed = [state for state in states if remove and ending is not Ending.TIMED_OUT and state.outcome != "Stopped"]
    for state in states:
        _report(state, client, target, console, remove=state in removed, ends_ranks=ends_ranks)
    _remove(removed, client, console)
    if ending is Ending.LEFT:
        return INTERRUPTED
    if ending is Ending.TIMED_OUT:
        return TIMED_OUT
    return max(EXIT_CODES.get(state.outcome or "", 1) for state in states)


def _report(
    state: JobState, client: SyncClient, target: Target, console: Console, *, remove: bool, ends_ranks: bool
) -> None:
    suggest = Suggestions.of(target)
    if state.outcome is None:
        up = target.up_command if target.is_down else ""
        for line in still_running_lines(state, suggest=suggest, up=up) if not remove else ():
            console.print(line)
        return
    colour = "green" if state.outcome == "Succeeded" else "red"
    now = datetime.now(UTC)
    first, *rest = result_lines(state, now=now, suggest=suggest, ends_ranks=ends_ranks, removed=remove)
    files = list(file_lines(state, client, target, suggest, remove=remove))  # before pods end, which moves their files
    if state.outcome == "Failed" and ends_ranks and not remove:
        left = state.leftover_pods()
        _end_pods(state, client, left)
        rest += ended_lines(left)
    console.print(first, colour=colour)
    for line in rest:
        console.print(line)
    for line in files:
        console.print(plain_text(line))
    if state.outcome in {"Succeeded", "Failed", "Deleted"}:
        # On the embedded cluster the operator adds the cause too: both say the same.
        cause = recorded_headline(state.object) or first.partition(": ")[2] if state.outcome == "Failed" else ""
        metrics = state.progress.metrics
        run = run_of(state.object, state=state.outcome, metrics=metrics, cause=cause, ranks=len(state.labels))
        append(history_file(target), run)
    if state.outcome == "Failed" and not remove and not ends_ranks:
        _offer_to_end_pods(state, client, console)


def _offer_to_end_pods(state: JobState, client: SyncClient, console: Console) -> None:
    """Asks on a terminal whether to end the ranks that outlive a failed job; elsewhere the result names the command."""
    left = state.leftover_pods()
    if not left or not (console.tty and sys.stdin.isatty()):
        return
    try:
        if not click.confirm(f"End {', '.join(left)} now?", default=True):
            return
    except click.Abort:
        console.print("")
        return
    _end_pods(state, client, left)


def _end_pods(state: JobState, client: SyncClient, ranks: Sequence[str]) -> None:
    for rank, pod in state.pods():
        if rank in ranks:
            with contextlib.suppress(NotFound, Conflict):  # it is gone, or another pod has its name
                client.delete(PODS, pod.name, namespace=state.namespace, uid=pod.metadata.uid)


def _remove(states: Sequence[JobState], client: SyncClient, console: Console) -> None:
    for state in states:
        with contextlib.suppress(NotFound, Conflict):
            client.delete(state.kind.resource, state.name, namespace=state.namespace, uid=state.uid)
            console.print(f"{state.kind.singular}.kubeflow.org/{state.name} deleted")


def file_lines(
    state: JobState, client: SyncClient, target: Target, suggest: Suggestions, *, remove: bool = False
) -> Iterator[str]:
    """The volumes of the job, its working directory and the user's home with what changed there, and private files."""
    own = state.process_ids() if target.embedded else ()
    find = partial(written_files, since=state.started_at or 0.0, until=state.ended_at, own=own)
    shown: list[Path] = [target.data.path] if target.data else []
    for name, mount, location in dict.fromkeys(_volumes(state, client)):
        yield from volume_lines([(name, mount, location)])
        if target.embedded and Path(location) not in shown:
            yield from written_file_lines(find(Path(location)), Path(location))
            shown.append(Path(location))
    if not target.embedded:
        return
    for directory in _working_directories(state):
        if files := find(directory, skip=shown):
            yield f"Files that changed in {directory} while it ran:"
            yield from written_file_lines(files, directory)
        shown.append(directory)
    home = Path.home()
    if home not in shown and (files := find(home, skip=shown, models=True)):
        yield f"Models that changed elsewhere in {home} while it ran:"
        yield from written_file_lines(files, home)
    yield from private_file_lines(state.private_files(), cp=suggest.cp(state), removed=remove)


def _working_directories(state: JobState) -> list[Path]:
    """Where programs write files with relative paths: workingDir, or the directory of the manifest."""
    job = state.object["metadata"].get("annotations") or {}
    replicas = read_job(state.object).replicas.values()
    found = [
        str(job.get(DIRECTORY) or ""),
        *(
            str(container.get("workingDir") or "")
            for replica in replicas
            for container in value_at(replica.template, "spec", "containers", default=())
        ),
    ]
    return [Path(path) for path in dict.fromkeys(found) if path.startswith("/") and Path(path).is_dir()]


def _volumes(state: JobState, client: SyncClient) -> Iterator[tuple[str, str, str]]:
    """Name, mount path and location of the job's volumes whose location is known."""
    for replica in read_job(state.object).replicas.values():
        spec = replica.template.get("spec") or {}
        mounts = {
            mount["name"]: mount["mountPath"]
            for container in spec.get("containers") or ()
            for mount in container.get("volumeMounts") or ()
        }
        for volume in spec.get("volumes") or ():
            location = _location(volume, state.namespace, client)
            if location and volume["name"] in mounts:
                yield volume["name"], mounts[volume["name"]], location


def _location(volume: Object, namespace: str, client: SyncClient) -> str | None:
    if host := volume.get("hostPath"):
        return str(host["path"])
    claim = value_at(volume, "persistentVolumeClaim", "claimName")
    if not claim:
        return None
    try:
        bound = client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace=namespace)
        name = value_at(bound, "spec", "volumeName")
        if not name:
            return None
        spec = client.get(PERSISTENT_VOLUMES, name)["spec"]
    except (ApiError, Unreachable):
        return None  # not found or not allowed to get: the result is printed without it
    if path := value_at(spec, "hostPath", "path") or value_at(spec, "local", "path"):
        return str(path)
    if share := spec.get("nfs"):
        return f"{share.get('server')}:{share.get('path')}"
    return f"PersistentVolume {name}"
