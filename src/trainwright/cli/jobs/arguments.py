"""Arguments that name jobs, with completion of their names in shells."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def job_argument(command: F) -> F:
    """One job: NAME, KIND/NAME, or KIND NAME."""
    return click.argument("job", nargs=-1, required=True, metavar="JOB", shell_complete=complete_jobs)(command)


def jobs_argument(*, required: bool) -> Callable[[F], F]:
    """Any number of jobs."""
    metavar = "JOB…" if required else "[JOB]…"
    return click.argument("jobs", nargs=-1, required=required, metavar=metavar, shell_complete=complete_jobs)


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of jobs that begin with `incomplete`; KIND/NAME if a kind was begun or two jobs share a name."""
    _ = param
    try:
        names = _job_names(ctx.params)
    except Exception:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _job_names(flags: dict[str, Any]) -> list[str]:
    from trainwright.cli.jobs.references import list_jobs
    from trainwright.cli.jobs.session import Session
    from trainwright.cli.targets import TargetOptions, find_target
    from trainwright.kube.client.sync_client import SyncClient

    options = TargetOptions(flags.get("context"), flags.get("kubeconfig"), flags.get("data_dir"))
    target = find_target(options).in_namespace(flags.get("namespace"))
    with SyncClient(target.config, retries=False, timeout=2.0) as client:
        jobs = list_jobs(Session(target, client))
    names = [job.name for job in jobs]
    return [name for name in dict.fromkeys(names) if names.count(name) == 1] + [job.reference for job in jobs]
