"""`trainwright status`: whether the cluster is running, its jobs, and what they use of the machine."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from trainwright.cli.errors import report_errors
from trainwright.cli.flags import TargetOptions, target_flags
from trainwright.cli.follow.texts.private_file_lines import format_size
from trainwright.cli.jobs.references import FoundJob, list_jobs
from trainwright.cli.jobs.session import Session
from trainwright.cli.jobs.summary import age, duration, finished_state, job_state, ranks
from trainwright.cli.machine import free_disk, free_memory
from trainwright.cli.output.tables import hanging, table_lines, terminal_width
from trainwright.cli.targets import NotRunningError, data_dir_at, find_target
from trainwright.cluster.facade import ClusterRecord, DataDir, PodProcess, disk_warning, pod_records, processes_of
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.requests import raw_request
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.kinds.nodes import OWN_PORTS
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.paths import value_at
from trainwright.objects.quantities import parse_quantity
from trainwright.objects.resources import NODES, PODS, Resource

NOT_RUNNING = 3
_SAMPLE_SECONDS = 0.2
_INDENT, _COLUMN = "    ", 11
_FINISHED_JOBS = 5
"""How many finished jobs are listed, the latest ones."""


@click.command(name="status")
@target_flags
def command(options: TargetOptions) -> None:
    """Show the state of the cluster and its jobs.

    Exit codes: 0 running, 1 unreachable or not healthy, 3 no embedded cluster is running.
    """
    data = data_dir_at(options.data_dir)
    try:
        target = find_target(options)
    except NotRunningError as error:
        click.echo(error.message, err=True)
        sys.exit(NOT_RUNNING)
    record = data.running() if target.embedded else None
    with report_errors(target.name), SyncClient(target.config, retries=False) as client:
        failed = failed_checks(client.send(raw_request("GET", "/readyz", params={"verbose": "true"})).body)
        nodes = _list(client, NODES)
        jobs = list_jobs(Session(target, client), all_namespaces=True)
        pods = [pod for pod in _list(client, PODS) if value_at(pod, "metadata", "annotations", MIRROR) is None]
    usage = _usage(data, jobs) if record else {}
    lines = [
        f"{target.name} is up",
        *(_details(record, data, nodes) if record else ()),
        f"  nodes    {count_by_state(node_state(node) for node in nodes)}",
        *(_resources(nodes, usage) if record else ()),
        *gpu_lines(nodes, pods),
        f"  pods     {count_by_state(_phase(pod) for pod in pods)}",
        f"  jobs     {count_by_state(job_state(job.object) for job in jobs)}",
        *(f"{_INDENT}{line}" for line in job_lines(jobs, usage, datetime.now(UTC))),
    ]
    click.echo("\n".join(lines))
    if failed:
        log = f": see {data.log}" if record else ""
        click.echo(f"  failed   {', '.join(failed)}{log}")
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the pods of a job use now."""

    cores: float
    memory: int


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


def job_lines(jobs: list[FoundJob], usage: Mapping[str, Usage], now: datetime) -> list[str]:
    """A table of the unfinished jobs and the latest finished ones."""
    finished = [job for job in jobs if finished_state(job.object)]
    finished.sort(key=lambda job: str(value_at(job.object, "status", "completionTime", default="")), reverse=True)
    unlisted = {job.uid for job in finished[_FINISHED_JOBS:]}
    shown = [job for job in jobs if job.uid not in unlisted]
    if not shown:
        return []
    rows = [_row(job, usage.get(job.uid), now) for job in shown]
    head = ["NAMESPACE", "NAME", "KIND", "STATE", "RANKS", "AGE", "DURATION"] + (["CPU", "MEMORY"] if usage else [])
    width = terminal_width()
    drop = ("AGE", "NAMESPACE", "KIND", "RANKS")
    lines = table_lines(head, [row[: len(head)] for row in rows], width=width and width - len(_INDENT), drop=drop)
    return [*lines, *([f"and {len(unlisted)} more that have finished: `trainwright ps -A`"] if unlisted else [])]


def _row(job: FoundJob, used: Usage | None, now: datetime) -> list[str]:
    cells = [job.namespace, job.name, job.kind.name, job_state(job.object), ranks(job.object, job.kind)]
    cells += [age(job.object, now), duration(job.object, now)]
    return [*cells, f"{used.cores:.1f}" if used else "", format_size(used.memory) if used else ""]


# The embedded cluster


def _details(record: ClusterRecord, data: DataDir, nodes: list[Object]) -> list[str]:
    warning = disk_warning(data)
    width = terminal_width()
    sandbox = hanging(sandbox_text(record.sandbox, nodes), indent=_COLUMN, width=width)
    return [
        f"  version  {record.version}, pid {record.pid}",
        f"  sandbox  {sandbox}",
        *([f"  network  {record.addresses}"] if record.addresses else []),
        *(f"  limits   {hanging(text, indent=_COLUMN, width=width)}" for text in unmet(nodes, "LimitsEnforced")),
        *(f"  ports    {hanging(text, indent=_COLUMN, width=width)}" for text in unmet(nodes, OWN_PORTS)),
        f"  python   {record.python}{f' ({record.python_origin})' if record.python_origin else ''}",
        f"  data     {hanging(f'{data.path} ({free_disk(data.path)})', indent=_COLUMN, width=width)}",
        *([f"  disk     {warning}"] if warning else []),
    ]


_SANDBOXES = {
    "overlay": "overlay: every pod sees the files of this machine with a private layer over them",
    "plain": "plain: pods are ordinary processes without a file system of their own",
}


def unmet(nodes: list[Object], condition_type: str) -> list[str]:
    """The messages of this condition where it is False."""
    found = (find_condition(node.get("status") or {}, condition_type) or {} for node in nodes)
    return [str(condition.get("message")) for condition in found if condition.get("status") == "False"]


def sandbox_text(level: str, nodes: list[Object]) -> str:
    """The level and, if it is not the strongest one, why."""
    reason = ""
    for node in nodes:
        ready = find_condition(node.get("status") or {}, "Ready") or {}
        _, _, note = str(ready.get("message") or "").partition(f"(sandbox {level}: ")
        reason = note.removesuffix(")") or reason
    text = _SANDBOXES.get(level, level)
    return f"{text}; overlay does not work here: {reason}" if reason else text


def _usage(data: DataDir, jobs: list[FoundJob]) -> dict[str, Usage]:
    """The usage of jobs by their uid, measured over a moment."""
    records = {job.uid: pod_records(data, job.uid) for job in jobs}
    everything = [record for found in records.values() for record in found if not record.removed]
    start, before = time.monotonic(), processes_of(everything)
    if not any(before.values()):
        return {}
    time.sleep(_SAMPLE_SECONDS)
    after, seconds = processes_of(everything), time.monotonic() - start
    usage = {}
    for uid, found in records.items():
        now = [process for record in found for process in after.get(record.uid, ())]
        earlier = {process.pid: process for record in found for process in before.get(record.uid, ())}
        if now:
            usage[uid] = Usage(used_seconds(earlier, now) / seconds, sum(process.memory for process in now))
    return usage


def used_seconds(before: Mapping[int, PodProcess], now: Iterable[PodProcess]) -> float:
    """CPU seconds since `before`; of a process that has started since, all of them."""
    earlier = {pid: process.cpu_seconds for pid, process in before.items()}
    return sum(max(process.cpu_seconds - earlier.get(process.pid, 0.0), 0.0) for process in now)


def _resources(nodes: list[Object], usage: Mapping[str, Usage]) -> list[str]:
    capacity = value_at(nodes[0], "status", "capacity", default={}) if nodes else {}
    cores = float(parse_quantity(str(capacity.get("cpu", "0"))))
    memory = int(parse_quantity(str(capacity.get("memory", "0"))))
    used_cores, used_memory = sum(job.cores for job in usage.values()), sum(job.memory for job in usage.values())
    return [
        f"  cpu      {used_cores:.1f} of {cores:g} cores used by pods",
        f"  memory   {format_size(used_memory)} of {format_size(memory)} used by pods, {free_memory()}",
    ]


def gpu_lines(nodes: Iterable[Object], pods: Iterable[Object]) -> list[str]:
    """`gpus     1 of 2 NVIDIA-H200 assigned to pods`, if the nodes have any."""
    total = sum(_gpus(value_at(node, "status", "allocatable", default={})) for node in nodes)
    if not total:
        return []
    products = {value_at(node, "metadata", "labels", "nvidia.com/gpu.product") for node in nodes} - {None}
    assigned = sum(
        _gpus(value_at(container, "resources", "limits", default={}))
        for pod in pods
        if value_at(pod, "spec", "nodeName") and _phase(pod) not in {"Succeeded", "Failed"}
        for container in pod["spec"]["containers"]
    )
    return [" ".join(["  gpus    ", f"{assigned} of {total}", *sorted(products), "assigned to pods"])]


def _gpus(amounts: Mapping[str, object]) -> int:
    return int(parse_quantity(str(amounts.get("nvidia.com/gpu", "0"))))


def _phase(pod: Object) -> str:
    return str(value_at(pod, "status", "phase", default="Pending"))


def _list(client: SyncClient, resource: Resource) -> list[Object]:
    """All objects of a resource; empty if the cluster does not serve it."""
    try:
        return client.list(resource).items
    except NotFound:
        return []
