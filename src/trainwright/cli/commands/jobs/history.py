"""`trainwright history`: lists finished runs with their metrics; they stay when jobs are run again or deleted."""

from datetime import timedelta
from typing import Any

import click

from trainwright.cli.flags import TargetOptions, target_flags
from trainwright.cli.history import RunRecord, history_file, metrics_text, read_history
from trainwright.cli.jobs.pods.ranks import local_time
from trainwright.cli.jobs.references import JobReference, complete_jobs, read_references
from trainwright.cli.output.formats import object_text, output_flag
from trainwright.cli.output.tables import table_lines, terminal_width
from trainwright.cli.targets import NotRunningError, Target, data_dir_at, find_target
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects.times import human_duration, parse_time


@click.command(name="history")
@click.argument("job", nargs=-1, metavar="[JOB]", shell_complete=complete_jobs)
@output_flag("table", "wide", "json", "yaml")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="List only the last N runs.")
@click.option("-n", "--namespace", metavar="NAME", help="Only runs in this namespace (default: all).")
@target_flags
def command(job: tuple[str, ...], output: str, limit: int, namespace: str | None, options: TargetOptions) -> None:
    """List finished runs with their last metrics, the latest last.

    Runs stay in the history when the job is run again or deleted. The embedded cluster records all runs. Of
    other clusters, the history has the runs that `run` or `logs -f` followed on this machine. RUN is the beginning of
    the job's uid. A narrow terminal shows fewer columns; -o wide shows all.
    """
    target = _target(options)
    runs = [run for run in read_history(history_file(target)) if _matches(run, read_references(job), namespace)]
    shown = runs[-limit:]
    if output in {"json", "yaml"}:
        click.echo(object_text([_plain(run) for run in shown], output))
    elif not shown:
        click.echo(f"No runs found{f' of {job[-1]}' if job else ''}.", err=True)
    else:
        wide = output == "wide"
        width = None if wide else terminal_width()
        click.echo("\n".join(table_lines(*_table(shown, wide=wide), width=width, drop=("RUN", "DURATION"))))


def _target(options: TargetOptions) -> Target:
    """The history of the embedded cluster can be read while it is not running."""
    try:
        return find_target(options)
    except NotRunningError:
        data = data_dir_at(options.data_dir)
        return Target(ClusterConfig(server=""), embedded=True, kubectl="kubectl", data=data)


def _matches(run: RunRecord, wanted: list[JobReference], namespace: str | None) -> bool:
    if namespace not in {None, run.namespace}:
        return False
    return not wanted or any(
        reference.name in {None, run.job} and (reference.kind is None or reference.kind.name == run.kind)
        for reference in wanted
    )


def _table(runs: list[RunRecord], *, wide: bool) -> tuple[list[str], list[list[str]]]:
    head = ["RUN", "JOB", "STATE", "STARTED", "DURATION", *(["NAMESPACE", "KIND", "RANKS"] if wide else []), "METRICS"]
    rows = []
    for run in runs:
        more = [run.namespace, run.kind, str(run.ranks or "")] if wide else []
        note = metrics_text(run.metrics)
        if run.cause and (wide or not note):
            note = f"{note}  {run.cause}".strip()
        rows.append([run.uid[:8], run.job, run.state, _started(run), _duration(run), *more, note])
    return head, rows


def _started(run: RunRecord) -> str:
    return local_time(parse_time(run.started).timestamp()) if run.started else ""


def _duration(run: RunRecord) -> str:
    if not run.started or not run.finished:
        return ""
    return human_duration(max(parse_time(run.finished) - parse_time(run.started), timedelta(0)))


def _plain(run: RunRecord) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(run)
    return found
