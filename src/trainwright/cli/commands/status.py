"""`trainwright status`: shows whether the cluster is running, and counts its nodes, jobs and pods by state."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from trainwright.api.kinds import KINDS
from trainwright.cli.errors import report_errors
from trainwright.cli.flags import target_flags
from trainwright.cli.jobs.summary import job_state
from trainwright.cli.targets import NotRunningError, TargetOptions, data_dir_at, find_target
from trainwright.cluster.embedded import ClusterRecord, DataDir, disk_warning
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
    """Show the state of the cluster and its jobs.

    Exit codes: 0 running, 1 unreachable or not healthy, 3 no embedded cluster is running.
    """
    data = data_dir_at(data_dir)
    try:
        target = find_target(TargetOptions(context, kubeconfig, data_dir))
    except NotRunningError as error:
        click.echo(error.message, err=True)
        sys.exit(NOT_RUNNING)
    record = data.running() if target.embedded else None
    with report_errors(target.name), SyncClient(target.config, retries=False) as client:
        failed = failed_checks(client.send(raw_request("GET", "/readyz", params={"verbose": "true"})).body)
        jobs = [job for kind in KINDS.values() for job in _list(client, kind.resource)]
        lines = [
            f"{target.name} is up",
            *_details(record, data),
            f"  nodes    {count_by_state(node_state(node) for node in _list(client, NODES))}",
            f"  jobs     {count_by_state(job_state(job) for job in jobs)}",
            f"  pods     {count_by_state(_phase(pod) for pod in _list(client, PODS))}",
        ]
    for line in lines:
        click.echo(line)
    if failed:
        log = f": see {data.log}" if record else ""
        click.echo(f"  failed   {', '.join(failed)}{log}")
        sys.exit(1)


def failed_checks(report: bytes) -> list[str]:
    """The failed checks in the answer of /readyz?verbose."""
    lines = report.decode(errors="replace").splitlines()
    return [line.removeprefix("[-]").split(" ")[0] for line in lines if line.startswith("[-]")]


def node_state(node: Object) -> str:
    return "Ready" if is_condition_true(node.get("status") or {}, "Ready") else "NotReady"


def count_by_state(states: Iterable[str]) -> str:
    """`2 Running, 1 Succeeded`, the most frequent first."""
    counts = sorted(Counter(states).items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{number} {state}" for state, number in counts) or "none"


def _details(record: ClusterRecord | None, data: DataDir) -> list[str]:
    if record is None:
        return []
    warning = disk_warning(data)
    return [
        f"  version  {record.version}, pid {record.pid}",
        f"  sandbox  {record.sandbox}",
        f"  python   {record.python} ({record.python_origin})",
        f"  data     {data.path}",
        *([f"  disk     {warning}"] if warning else []),
    ]


def _phase(pod: Object) -> str:
    return str(value_at(pod, "status", "phase", default="Pending"))


def _list(client: SyncClient, resource: Resource) -> list[Object]:
    """All objects of a resource; empty if the cluster does not serve it."""
    try:
        return client.list(resource).items
    except NotFound:
        return []
