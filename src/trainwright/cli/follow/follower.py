"""Follows jobs until they finish: watches them, their pods and events, and reads all logs.

Watch events and log lines update a JobState per job. A few times a second, everything new is printed at once.
"""

import asyncio
import itertools
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from trainwright.api.labels import JOB_NAME
from trainwright.cli.follow.interrupts import Choice, Interrupts
from trainwright.cli.follow.logs.api_logs import ApiLogs
from trainwright.cli.follow.logs.log_printer import LogPrinter
from trainwright.cli.follow.logs.log_source import LogSource
from trainwright.cli.follow.logs.record_logs import RecordLogs
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.follow.texts.messages import (
    Suggestions,
    late_rank_line,
    phases_text,
    repeated_failure_lines,
    silence_lines,
    waiting_lines,
)
from trainwright.cli.follow.texts.status_line import Status, render_status, status_of
from trainwright.cli.jobs.pods.pod_states import listener_line
from trainwright.cli.output.console import Console
from trainwright.cli.targets import Target, embedded_cluster
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, PODS, Resource

_REFRESH_SECONDS = 0.15
_MOVE_CHECKS = 10
"""Every so many refreshes it is checked whether the cluster has been started on another port."""
_SYNC_SECONDS = 5.0
_FAILED_POD_SECONDS = 2.0
_FIRST_FAILURE_SECONDS = 5.0
_OTHER_PODS_SECONDS = {"Succeeded": 3.0, "Failed": 5.0}
"""How long the ends of a job's other ranks are awaited. After a failure they may have to notice it first."""
_SILENT_END_SECONDS = 60.0
"""How long the end of a pod that is being terminated is awaited while it prints nothing."""


class Ending(Enum):
    FINISHED = "every job has finished"
    TIMED_OUT = "the time is over"
    LEFT = "the user leaves the jobs running"
    MOVED = "the cluster has another address now"


class Follower:
    """Follows the jobs of `states`, whose logs `source` reads.

    While the cluster is unreachable it keeps trying, and tells the user what to do meanwhile.
    """

    def __init__(
        self,
        client: Client,
        states: Sequence[JobState],
        source: LogSource,
        printer: LogPrinter,
        console: Console,
        interrupts: Interrupts,
        target: Target,
    ) -> None:
        self._client = client
        self._states = states
        self._source = source
        self._printer = printer
        self._console = console
        self._interrupts = interrupts
        self._target = target
        self._suggest = Suggestions.of(target)
        self._pods_ended = False
        """True while the cluster is down and the jobs have no processes: the API cannot say that."""
        self._shown_phases: dict[str, str] = {}
        self._tasks: list[asyncio.Task[object]] = []
        self._syncs: list[asyncio.Task[None]] = []
        self._frames = itertools.count()
        self._checks = itertools.count(1)

    async def run(self) -> Ending:
        """Returns when every job has finished and its logs are printed, when the user leaves, or when the cluster has
        moved."""
        warnings = WatchWarnings(self._console, unreachable_advice(self._target))
        logging.getLogger("trainwright").addHandler(warnings)
        try:
            return await self._follow()
        finally:
            logging.getLogger("trainwright").removeHandler(warnings)
            self._console.live()

    async def _follow(self) -> Ending:
        try:
            self._watch()
            while not all(state.outcome for state in self._states):
                if await self._pause():
                    return Ending.LEFT
                self._step()
                if next(self._checks) % _MOVE_CHECKS == 0:
                    self._pods_ended = self._target.is_down and not any(state.process_ids() for state in self._states)
                    if self._target.has_moved:
                        return Ending.MOVED
            if await self._drain():
                return Ending.LEFT
            return Ending.FINISHED
        finally:
            self._step()
            await _cancel([*self._tasks, *self._syncs])

    async def _pause(self) -> bool:
        """Waits until the next refresh; True if the user leaves."""
        match await self._interrupts.wait(_REFRESH_SECONDS, self._states):
            case Choice.LEAVE:
                return True
            case Choice.STOP:
                await self._stop()
            case _:
                pass
        return False

    async def _stop(self) -> None:
        """Suspends the jobs: their pods end within their grace period, the objects and files stay."""
        for state in self._states:
            if state.outcome is None:
                state.stopping = True
                patch: Object = {"metadata": {"uid": state.uid}, "spec": {"runPolicy": {"suspend": True}}}
                try:
                    await self._client.patch(state.kind.resource, state.name, patch, namespace=state.namespace)
                    self._console.print(f"{state.name}: stopping; its pods may save their state")
                except (ApiError, Unreachable) as error:
                    state.stopping = False
                    self._console.print(f"Warning: failed to stop {state.name}: {error}", colour="yellow")

    # Showing

    def _step(self) -> None:
        """Reads all logs and prints what has changed since the last call."""
        with self._console.batch():
            now = time.time()
            self._show_states(now)
            self._printer.print(self._source.read(), now)
            self._show_diagnoses(now)
            self._console.live(*self._live_lines(now))

    def _show_states(self, now: float) -> None:
        several = len(self._states) > 1
        for state in self._states:
            for warning in state.new_warnings(now, with_job_name=several):
                self._console.print(f"Warning: {warning}", colour="yellow")
            for note in state.new_notes():
                self._console.print(note, colour="bright_black")
            prefix = f"{state.name}/" if several else ""
            for rank, address in state.new_listeners():
                self._console.print(listener_line(f"{prefix}{rank}", address))
            phases = phases_text(state, suggest=self._suggest)
            if phases and phases != self._shown_phases.get(state.uid):
                self._shown_phases[state.uid] = phases
                self._console.print(f"{state.name}: {phases}", colour="bright_black")

    def _show_diagnoses(self, now: float) -> None:
        for state in self._states:
            stop = self._suggest.command("stop", state)
            lines = [
                *waiting_lines(state.new_waiting(now)),
                *(
                    line
                    for failure in state.new_repeated_failures()
                    for line in repeated_failure_lines(state, failure, suggest=self._suggest)
                ),
                *(late_rank_line(late, now, stop) for late in state.new_late_ranks(now)),
                *silence_lines(state, None if self._pods_ended else state.new_silence(now), suggest=self._suggest),
            ]
            for line in lines:
                self._console.print(line, colour="yellow")

    def _live_lines(self, now: float) -> list[str]:
        if not self._console.tty:
            return []
        # Three columns stay empty: behind the last line the terminal shows `^C`, and begins a new row at its edge.
        width, frame = self._console.width - 4, next(self._frames)
        lines = self._printer.live_lines(max(self._console.height // 3, 1))
        for state in self._states:
            if not state.outcome:
                prefix = f"{state.name}: " if len(self._states) > 1 else ""
                status = status_of(state, now)
                if self._pods_ended:
                    status = Status(elapsed=status.elapsed, activity="waiting for the cluster")
                lines.append(prefix + render_status(status, width=width - len(prefix), frame=frame))
        return lines

    # Watching

    def _watch(self) -> None:
        for namespace in {state.namespace for state in self._states}:
            self._reflect(EVENTS, self._on_event, namespace=namespace)
        for state in self._states:
            self._reflect(
                state.kind.resource,
                partial(_on_job, state),
                namespace=state.namespace,
                field_selector=f"metadata.name={state.name}",
            )
            self._reflect(
                PODS,
                partial(self._on_pod, state),
                namespace=state.namespace,
                label_selector=f"{JOB_NAME}={state.name}",
            )

    def _reflect(
        self,
        resource: Resource,
        on_change: Callable[[Object | None, Object | None], None],
        *,
        namespace: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        reflector = Reflector(
            self._client,
            resource,
            Store[Object](),
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            on_change=on_change,
        )
        self._tasks.append(asyncio.create_task(reflector.run()))
        self._syncs.append(asyncio.create_task(reflector.wait_for_sync()))

    def _on_event(self, old: Object | None, new: Object | None) -> None:
        if new is None or new.get("type") != "Warning" or old is not None:
            return
        for state in self._states:
            state.add_warning(new, time.time())

    def _on_pod(self, state: JobState, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or new["metadata"]["uid"] != old["metadata"]["uid"]):
            state.remove_pod(old["metadata"]["uid"])
        if new is not None and (pod := state.update_pod(new)):
            self._source.pod_changed(state, pod)

    # The end

    async def _drain(self) -> bool:
        """Waits for the ends of the logs; True if the user leaves. Pods that outlive their job may keep running."""
        ended = quiet_since = time.monotonic()
        while self._awaits(time.monotonic() - ended):
            if await self._pause():
                return True
            before = self._printer.printed
            self._step()
            if self._printer.printed != before:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > _SILENT_END_SECONDS:
                return False
        return False

    def _awaits(self, seconds: float) -> bool:
        # Of a job that cannot start other ranks may run on: its logs have no end.
        states = [state for state in self._states if state.outcome != "Stuck"]
        if not all(self._source.is_complete(state) for state in states):
            return True
        # A short job may have finished before the events about it were listed.
        if seconds < _SYNC_SECONDS and not all(sync.done() for sync in self._syncs):
            return True
        # A job's failure may arrive before that of its pod, because they come from different watches.
        if seconds < _FAILED_POD_SECONDS and any(
            state.outcome == "Failed" and not state.has_failed_run for state in states
        ):
            return True
        # A peer may notice the failure of a rank before that rank has ended.
        if seconds < _FIRST_FAILURE_SECONDS and any(state.awaits_first_failure for state in states):
            return True
        # Peers of the pod that decided about the result usually end a moment later.
        return any(
            seconds < _OTHER_PODS_SECONDS.get(state.outcome or "", 0.0) and state.leftover_pods() for state in states
        )


def unreachable_advice(target: Target) -> str:
    """It claims nothing about the pods: `down` ends them, or leaves them running."""
    if not target.embedded:
        return "waiting for the cluster; Ctrl-C leaves its jobs as they are"
    return f"waiting for the cluster; if it is not running, its jobs continue after `{target.up_command}`"


class WatchWarnings(logging.Handler):
    """Prints the warnings that watches log about an unreachable cluster; equal ones of several watches only once."""

    def __init__(self, console: Console, advice: str = "") -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._advice = advice
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        _, _, warning = record.getMessage().partition(": ")  # the first part names the watch
        if warning and warning not in self._shown:
            self._shown.add(warning)
            self._console.print(f"Warning: {warning}", colour="yellow")
            if self._advice and len(self._shown) == 1:
                self._console.print(f"  {self._advice}")


def _on_job(state: JobState, old: Object | None, new: Object | None) -> None:
    _ = old
    state.update_job(new)


async def _cancel(tasks: Sequence["asyncio.Task[object] | asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


# From a command


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
    records = RecordLogs(target.data, states) if target.data else None
    with interrupts.handled():
        while True:
            async with Client(target.config) as client:
                source: LogSource = records or ApiLogs(client, warn=partial(_warn, console))
                try:
                    ending = await Follower(client, states, source, printer, console, interrupts, target).run()
                except BaseException:
                    await source.close()
                    raise
            if ending is not Ending.MOVED or target.data is None:
                await source.close()
                return ending
            target = replace(target, config=embedded_cluster(target.data).config)


def _warn(console: Console, warning: str) -> None:
    console.print(f"Warning: {warning}", colour="yellow")
