"""Follows existing jobs from a command: with the records of the embedded cluster, or the API of another one."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from trainwright.cli.follow.follower import Ending, Follower
from trainwright.cli.follow.interrupts import Interrupts
from trainwright.cli.follow.logs.api_logs import ApiLogs
from trainwright.cli.follow.logs.log_printer import LogPrinter
from trainwright.cli.follow.logs.log_source import LogSource
from trainwright.cli.follow.logs.record_logs import RecordLogs
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.follow.texts.messages import Suggestions
from trainwright.cli.output.console import Console
from trainwright.cli.targets import Target, embedded_cluster
from trainwright.kube.client.async_client import Client


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
    printer = LogPrinter(states, console, tail=tail, ranks=ranks)
    interrupts = Interrupts(console, target, asks=asks and console.tty and sys.stdin.isatty())

    async def limited() -> Ending:
        try:
            async with asyncio.timeout(timeout):
                return await _follow(states, target, console, printer, interrupts)
        except TimeoutError:
            return Ending.TIMED_OUT

    try:
        return asyncio.run(limited())
    except KeyboardInterrupt:
        return Ending.LEFT  # before the event loop handled it


async def _follow(
    states: Sequence[JobState], target: Target, console: Console, printer: LogPrinter, interrupts: Interrupts
) -> Ending:
    """Connects again if the embedded cluster has moved to another port; its records are read on meanwhile."""
    suggest = Suggestions.of(target)
    records = RecordLogs(target.data, states) if target.data else None
    with interrupts.handled():
        while True:
            async with Client(target.config) as client:
                source: LogSource = records or ApiLogs(client, warn=partial(_warn, console))
                follower = Follower(
                    client, states, source, printer, console, interrupts, target=target, suggest=suggest
                )
                try:
                    ending = await follower.run()
                except BaseException:
                    await source.close()
                    raise
            if ending is not Ending.MOVED or target.data is None:
                await source.close()
                return ending
            target = replace(target, config=embedded_cluster(target.data).config)


def _warn(console: Console, warning: str) -> None:
    console.print(f"Warning: {warning}", colour="yellow")
