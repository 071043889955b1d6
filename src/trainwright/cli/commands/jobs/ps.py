"""`trainwright ps`: lists jobs of all kinds, prints them as JSON or YAML, and watches them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click

from trainwright.api.kinds import KINDS, Kind
from trainwright.api.labels import JOB_NAME
from trainwright.cli.errors import CommandError
from trainwright.cli.history import history_file, metrics_text, read_history
from trainwright.cli.jobs.pods.pod_states import MAX_PORTS, listening_addresses
from trainwright.cli.jobs.references import FoundJob, JobReference, jobs_argument, list_jobs, read_references, resolve
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import age, duration, job_state, present_ranks, ranks, restart_count
from trainwright.cli.output.console import plain_text
from trainwright.cli.output.formats import FORMATS, list_of, object_text, output_flag, without_managed_fields
from trainwright.cli.output.tables import Table, terminal_width
from trainwright.kube.client.errors import NotFound, Unreachable
from trainwright.objects.kinds.pods import read_pod
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PODS

_LEAST_WIDTHS = {"STATE": len("Succeeded"), "DURATION": len("DURATION"), "AGE": len("2m34s")}
"""So that rows that --watch prints later stay in their columns."""
_DROPPED = ("AGE", "KIND", "RANKS", "DURATION")
"""What a narrow terminal does not show, in this order."""


@click.command(name="ps")
@jobs_argument(required=False)
@output_flag(*FORMATS)
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="List jobs with these labels (team=vision).")
@click.option("-w", "--watch", is_flag=True, help="Print a row whenever a job changes, until Ctrl-C.")
@cluster_command
def command(
    session: Session, jobs: tuple[str, ...], output: str, all_namespaces: bool, selector: str, watch: bool
) -> None:
    """List training jobs of all kinds.

    JOB is NAME or KIND/NAME (digits, pytorchjob/digits); a KIND alone lists its jobs. RANKS counts the ranks that run
    or have succeeded. METRICS are those of the finished run. A narrow terminal shows fewer columns; -o wide shows all,
    and where the pods of the embedded cluster listen.
    `get` is the same command.
    """
    references = read_references(jobs)
    by_name = any(reference.name for reference in references)
    if by_name and (all_namespaces or selector):
        raise CommandError("--all-namespaces and --selector cannot be combined with the name of a job")
    found = _selected(session, references, all_namespaces=all_namespaces, selector=selector)
    if output in {"json", "yaml"} and not watch:
        objects = [without_managed_fields(job.object) for job in found]
        alone = by_name and len(objects) == 1
        click.echo(object_text(objects[0] if alone else list_of(objects), output))
        return
    printer = _Printer(session, output, with_namespace=all_namespaces)
    printer.print(found)
    if not found and not watch:
        where = "" if all_namespaces else f" in {session.namespace} namespace"
        click.echo(f"No resources found{where}.", err=True)
    if watch:
        shown = {job.uid for job in found} if by_name else None
        for change in _changes(session, found, references, all_namespaces=all_namespaces, selector=selector):
            if shown is None or change.uid in shown:
                printer.print([change])


def _selected(
    session: Session, references: Sequence[JobReference], *, all_namespaces: bool, selector: str
) -> list[FoundJob]:
    if any(reference.name for reference in references):
        return [resolve(session, reference) for reference in references]
    kind = references[0].kind if references else None
    return list_jobs(session, kind=kind, all_namespaces=all_namespaces, label_selector=selector)


class _Printer:
    """Prints jobs in one format; the first call decides about the widths of columns."""

    def __init__(self, session: Session, output: str, *, with_namespace: bool) -> None:
        self._output = output
        self._with_namespace = with_namespace
        self._session = session
        self._table: Table | None = None

    def print(self, jobs: Sequence[FoundJob]) -> None:
        if not jobs:
            return
        if self._output == "name":
            click.echo("\n".join(job.resource_name for job in jobs))
        elif self._output in {"json", "yaml"}:
            for job in jobs:
                begin = "---\n" if self._output == "yaml" else ""
                click.echo(begin + object_text(without_managed_fields(job.object), self._output))
        else:
            self._print_rows(jobs)

    def _print_rows(self, jobs: Sequence[FoundJob]) -> None:
        now = datetime.now(UTC)
        runs = read_history(history_file(self._session.target))
        metrics = {run.uid: metrics_text(run.metrics) for run in runs}
        listeners = _listeners_by_uid(self._session, jobs) if self._output == "wide" else {}
        cells = [self._cells(job, metrics.get(job.uid, ""), listeners.get(job.uid, ()), now) for job in jobs]
        head, rows = list(cells[0]), [[plain_text(cell) for cell in row.values()] for row in cells]
        if self._table is None:
            width = None if self._output == "wide" else terminal_width()
            self._table = Table.fitted(head, rows, width=width, drop=_DROPPED, least=_LEAST_WIDTHS)
            click.echo(self._table.line(head))
        for row in rows:
            click.echo(self._table.line(row))

    def _cells(self, job: FoundJob, metrics: str, listeners: Sequence[str], now: datetime) -> dict[str, str]:
        obj = job.object
        cells = {"NAMESPACE": job.namespace} if self._with_namespace else {}
        cells |= {
            "NAME": job.name,
            "KIND": job.kind.name,
            "STATE": "Deleted" if job.deleted else job_state(obj),
            "RANKS": ranks(obj, job.kind),
            "AGE": age(obj, now),
            "DURATION": duration(obj, now),
        }
        if self._output == "wide":
            cells |= {"RESTARTS": str(restart_count(obj)), "IMAGE": ",".join(_images(job))}
            cells |= {"LISTENS AT": ",".join(listeners[:MAX_PORTS]) or "<none>"}
        return cells | {"METRICS": metrics}


def _listeners_by_uid(session: Session, jobs: Sequence[FoundJob]) -> dict[str, list[str]]:
    """Where the pods of each job listen, which only the embedded node reports."""
    found: dict[str, list[str]] = {}
    for namespace in {job.namespace for job in jobs} if session.target.embedded else ():
        for obj in session.client.list(PODS, namespace=namespace, label_selector=JOB_NAME).items:
            pod = read_pod(obj)
            if pod.metadata.controller is not None:
                found.setdefault(pod.metadata.controller.uid, []).extend(listening_addresses(pod))
    return found


def _images(job: FoundJob) -> list[str]:
    roles = value_at(job.object, "spec", job.kind.replicas_field, default={}).values()
    containers = (
        container for role in roles for container in value_at(role, "template", "spec", "containers", default=())
    )
    return list(dict.fromkeys(str(container.get("image", "")) for container in containers))


def _changes(
    session: Session,
    found: Sequence[FoundJob],
    references: Sequence[JobReference],
    *,
    all_namespaces: bool,
    selector: str,
) -> Iterator[FoundJob]:
    """The jobs whose row changes, as they change. Each kind is watched by a thread."""
    import queue
    import threading

    from trainwright.cli.jobs.watching import watch_objects

    namespace = None if all_namespaces else session.namespace
    changes: queue.Queue[FoundJob | Exception] = queue.Queue()

    warned: set[str] = set()

    def warn(error: Unreachable) -> None:
        if str(error) not in warned:  # by the watches of all kinds
            warned.add(str(error))
            click.echo(f"Warning: {error}; waiting for the cluster", err=True)

    def watch(kind: Kind) -> None:
        try:
            for type_, obj in watch_objects(
                session.client, kind.resource, namespace=namespace, label_selector=selector, on_unreachable=warn
            ):
                changes.put(FoundJob(kind, obj, deleted=type_ == "DELETED"))
        except NotFound:
            return  # the cluster does not serve this kind
        except Exception as error:
            changes.put(error)

    kinds = [reference.kind for reference in references if reference.kind] or list(KINDS.values())
    for kind in kinds:
        threading.Thread(target=watch, args=(kind,), daemon=True).start()
    shown = {job.uid: _row_key(job) for job in found}
    while True:
        change = changes.get()
        if isinstance(change, Exception):
            raise change
        if shown.get(change.uid) != _row_key(change):
            shown[change.uid] = _row_key(change)
            yield change


def _row_key(job: FoundJob) -> tuple[str, int, int, bool]:
    """The cells that change by more than time."""
    return job_state(job.object), present_ranks(job.object), restart_count(job.object), job.deleted
