"""`trainwright run`: checks manifests, applies them, and follows their jobs until all are over."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from trainwright.api.job import read_job
from trainwright.cli.console import Console
from trainwright.cli.errors import Problem, problems_reported
from trainwright.cli.flags import duration, python_path, target_flags
from trainwright.cli.follow.job_state import JobStory
from trainwright.cli.follow.messages import EXIT_CODES, goes_on, verdict, volume_lines
from trainwright.cli.manifests.apply import (
    annotated,
    apply_job,
    apply_other,
    caller_python,
    in_order,
    refuse_others,
)
from trainwright.cli.manifests.reader import read_manifests
from trainwright.cli.manifests.validation import Item, check
from trainwright.cli.targets import Target, TargetOptions, find_target
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES


@click.command(name="run")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option("-n", "--namespace", help="For objects that name none (default: the context's).")
@click.option(
    "--python",
    type=python_path,
    metavar="PATH",
    help="The Python of the pods, on the embedded cluster (default: that of the active virtual or conda environment).",
)
@click.option("--follow/--no-follow", default=True, help="Follow the jobs to their end (default), or return at once.")
@click.option(
    "--timeout", type=duration, metavar="DURATION", help="Stop following after this time (90s, 5m); the jobs go on."
)
@click.option("--replace", is_flag=True, help="End a running job of the same name and another spec.")
@target_flags
def command(
    files: tuple[str, ...],
    namespace: str | None,
    python: Path | None,
    follow: bool,
    timeout: float | None,
    replace: bool,
    context: str | None,
    kubeconfig: Path | None,
    data_dir: Path | None,
) -> None:
    """Run the jobs of manifests and follow them to their end.

    FILE is a YAML or JSON file, a directory of them, or - for standard input. Everything is checked before anything is
    applied. A job that has finished before is run again; one that is running is followed.

    Exit codes: 0 succeeded, 1 failed, 124 timed out, 130 interrupted (the job goes on).
    """
    documents = read_manifests(files)
    target = find_target(TargetOptions(context, kubeconfig, data_dir)).in_namespace(namespace)
    if python and not target.embedded:
        raise Problem("--python is for the embedded cluster: elsewhere a pod's Python is that of its image")
    place = f" -n {namespace}" if namespace else ""
    again = f"trainwright run{target.flags}{place} {shlex.join(files)}"
    console = Console.of()
    Console.of(sys.stderr).say(target.line)
    with problems_reported(target.name), SyncClient(target.config) as client:
        items = in_order(check(documents, client, target.config.namespace))
        refuse_others(items, client, replace=replace)
        stories = _applied(items, client, target, python=python, replace=replace, console=console)
        if not stories:
            return
        if not follow:
            # Who follows the jobs is told by their events.
            for warning in (text for item in items if item.job for text in item.job.warnings):
                console.say(f"Warning: {warning}", colour="yellow")
            console.say(f"follow with: {again}")
            return
        sys.exit(_followed(stories, client, target, console, again=again, timeout=timeout))


def _applied(
    items: Sequence[Item],
    client: SyncClient,
    target: Target,
    *,
    python: Path | None,
    replace: bool,
    console: Console,
) -> list[JobStory]:
    stories = []
    for item in items:
        if item.job is None:
            console.say(apply_other(item, client))
            continue
        wanted = item.document.object
        if target.embedded:
            wanted = annotated(wanted, item.document.directory, asked=python, active=caller_python())
        created = apply_job(item, wanted, client, replace=replace, say=console.say)
        stories.append(JobStory(read_job(created), created["metadata"]["uid"], python=target.python))
    return stories


def _followed(
    stories: list[JobStory],
    client: SyncClient,
    target: Target,
    console: Console,
    *,
    again: str,
    timeout: float | None,
) -> int:
    """Follows the jobs and says how they ended; the exit code."""
    try:
        in_time = _follow(stories, target, console, timeout=timeout)
    except KeyboardInterrupt:
        in_time = None
    for story in stories:
        if story.outcome:
            colour = "green" if story.outcome == "Succeeded" else "red"
            first, *rest = verdict(story, now=datetime.now(UTC), kubectl=target.kubectl)
            console.say(first, colour=colour)
            for line in (*rest, *volume_lines(_volumes(story, client))):
                console.say(line)
        else:
            for line in goes_on(story, again=again, kubectl=target.kubectl):
                console.say(line)
    if in_time is None:
        return 130
    if not in_time:
        return 124
    return max(EXIT_CODES.get(story.outcome or "", 1) for story in stories)


def _follow(stories: list[JobStory], target: Target, console: Console, *, timeout: float | None) -> bool:
    # Imported while the pods are starting: what was needed so far was loaded in a fraction of the time.
    import asyncio

    from trainwright.cli.follow.follower import follow
    from trainwright.kube.client.async_client import Client

    restart = f", or is started again with `trainwright up --detach{target.flags}`" if target.embedded else ""
    advice = f"waiting until it answers again{restart}; Ctrl-C ends the waiting, not the jobs"

    async def session() -> bool:
        async with Client(target.config) as client:
            return await follow(client, stories, console, timeout=timeout, advice=advice)

    return asyncio.run(session())


def _volumes(story: JobStory, client: SyncClient) -> Iterator[tuple[str, str, str]]:
    """Name, mount and place of the volumes of a job whose place can be named."""
    for replica in read_job(story.object).replicas.values():
        spec = replica.template.get("spec") or {}
        mounts = {
            mount["name"]: mount["mountPath"]
            for container in spec.get("containers") or ()
            for mount in container.get("volumeMounts") or ()
        }
        for volume in spec.get("volumes") or ():
            place = _place(volume, story.namespace, client)
            if place and volume["name"] in mounts:
                yield volume["name"], mounts[volume["name"]], place


def _place(volume: Object, namespace: str, client: SyncClient) -> str | None:
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
        return None  # not there, or not for us to see: the verdict stands without it
    if path := value_at(spec, "hostPath", "path") or value_at(spec, "local", "path"):
        return str(path)
    if share := spec.get("nfs"):
        return f"{share.get('server')}:{share.get('path')}"
    return f"persistent volume {name}"
