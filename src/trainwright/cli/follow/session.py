"""Follows existing jobs from a command: with the records of the embedded cluster, or the API of another one."""

import asyncio
import sys
from collections.abc import Sequence

from trainwright.api.job import read_job
from trainwright.cli.console import Console
from trainwright.cli.follow.follower import Ending, follow
from trainwright.cli.follow.interrupts import Interrupts
from trainwright.cli.follow.job_state import JobState
from trainwright.cli.follow.logs.api_logs import ApiLogs
from trainwright.cli.follow.logs.log_source import LogSource
from trainwright.cli.follow.logs.record_logs import RecordLogs
from trainwright.cli.follow.suggestions import Suggestions
from trainwright.cli.targets import Target
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object


def state_of(job: Object, target: Target) -> JobState:
    """The state of a job as the cluster has it, before anything is known of its pods."""
    return JobState(read_job(job), job["metadata"]["uid"], python=target.python)


def follow_jobs(
    states: Sequence[JobState],
    target: Target,
    console: Console,
    *,
    timeout: float | None = None,
    tail: int | None = None,
    ranks: frozenset[str] | None = None,
    asks: bool = True,
) -> Ending:
    """Prints the logs of these jobs from their beginning, or the last `tail` lines of each rank, until all have ended.

    `ranks` limits the logs to these ranks. It creates and deletes nothing. `asks`: a second Ctrl-C asks whether to stop
    the jobs; otherwise, and without a terminal, Ctrl-C leaves them running at once.
    """
    restart = f" (to restart it: `trainwright up --detach{target.flags}`)" if target.embedded else ""
    advice = f"waiting for the cluster{restart}; the jobs keep running if you leave with Ctrl-C"

    async def session() -> Ending:
        interrupts = Interrupts(console, asks=asks and console.tty and sys.stdin.isatty())
        async with Client(target.config) as client:
            with interrupts.handled():
                return await follow(
                    client,
                    states,
                    _log_source(client, states, target, console),
                    console,
                    timeout=timeout,
                    tail=tail,
                    ranks=ranks,
                    suggest=Suggestions.of(target),
                    advice=advice,
                    interrupts=interrupts,
                )

    try:
        return asyncio.run(session())
    except KeyboardInterrupt:
        return Ending.LEFT  # before the event loop handled it


def _log_source(client: Client, states: Sequence[JobState], target: Target, console: Console) -> LogSource:
    if target.data is not None:
        return RecordLogs(target.data, states)
    return ApiLogs(client, warn=lambda warning: console.print(f"Warning: {warning}", colour="yellow"))
