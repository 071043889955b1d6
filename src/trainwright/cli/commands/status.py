"""`trainwright status`: is there a cluster, what is it like, and how are its jobs."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from trainwright.api.kinds import KINDS
from trainwright.cli.errors import problems_reported
from trainwright.cli.flags import target_flags
from trainwright.cli.targets import NotRunning, TargetOptions, data_dir_at, find_target
from trainwright.cluster.embedded import ClusterRecord, DataDir
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.requests import raw_request
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.paths import value_at
from trainwright.objects.resources import NODES, PODS, Resource

NOT_RUNNING = 3


@click.command(name="status")
@target_flags
def command(context: str | None, kubeconfig: Path | None, data_dir: Path | None) -> None:
    """Show whether the cluster runs, and its jobs.

    Exit codes: 0 it runs, 3 no embedded cluster runs, 1 the cluster does not answer or a part of it is broken.
    """
    data = data_dir_at(data_dir)
    try:
        target = find_target(TargetOptions(context, kubeconfig, data_dir))
    except NotRunning as none:
        click.echo(none.message, err=True)
        sys.exit(NOT_RUNNING)
    record = data.running() if target.embedded else None
    with problems_reported(target.name), SyncClient(target.config, retries=False) as client:
        broken = broken_parts(client.send(raw_request("GET", "/readyz", params={"verbose": "true"})).body)
        jobs = [job for kind in KINDS.values() for job in _listed(client, kind.resource)]
        lines = [
            f"{target.name} is up",
            *_details(record, data),
            f"  nodes    {counted(ready_or_not(node) for node in _listed(client, NODES))}",
            f"  jobs     {counted(state_of(job) for job in jobs)}",
            f"  pods     {counted(_phase(pod) for pod in _listed(client, PODS))}",
        ]
    for line in lines:
        click.echo(line)
    if broken:
        where = f": {data.log} says why" if record else ""
        click.echo(f"  broken   {', '.join(broken)}{where}")
        sys.exit(1)


def broken_parts(report: bytes) -> list[str]:
    """Which checks of a server's readiness report have failed."""
    lines = report.decode(errors="replace").splitlines()
    return [line.removeprefix("[-]").split(" ")[0] for line in lines if line.startswith("[-]")]


def state_of(job: Object) -> str:
    """The job's state as its column in kubectl shows it."""
    conditions = value_at(job, "status", "conditions", default=())
    true = [str(one.get("type")) for one in conditions if one.get("status") == "True"]
    return true[-1] if true else "New"


def ready_or_not(node: Object) -> str:
    return "Ready" if is_condition_true(node.get("status") or {}, "Ready") else "NotReady"


def counted(words: Iterable[str]) -> str:
    """`2 Running, 1 Succeeded`, the most frequent first."""
    counts = sorted(Counter(words).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{number} {word}" for word, number in counts) or "none"


def _details(record: ClusterRecord | None, data: DataDir) -> list[str]:
    if record is None:
        return []
    return [
        f"  version  {record.version}, pid {record.pid}",
        f"  sandbox  {record.sandbox}",
        f"  python   {record.python}",
        f"  data     {data.path}",
    ]


def _phase(pod: Object) -> str:
    return str(value_at(pod, "status", "phase", default="Pending"))


def _listed(client: SyncClient, resource: Resource) -> list[Object]:
    """All objects of a resource; none if the cluster does not know it."""
    try:
        return client.list(resource).items
    except NotFound:
        return []
