"""Follows jobs on any cluster until they finish: watches them, their pods and events, and streams all logs.

Watch events and log lines update a JobState per job. A few times a second, changes are printed.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from trainwright.api.labels import JOB_NAME
from trainwright.cli.console import Console
from trainwright.cli.follow.job_state import JobState
from trainwright.cli.follow.messages import progress_line
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.pods import read_pod
from trainwright.objects.resources import EVENTS, PODS, Resource
from trainwright.objects.times import parse_time

_REFRESH_SECONDS = 0.15
_LOG_END_SECONDS = 5.0
_OTHER_LOGS_SECONDS = 0.5
_FAILED_POD_SECONDS = 2.0
_RUNNING_POD_SECONDS = 1.0


async def follow(
    client: Client, states: Sequence[JobState], console: Console, *, timeout: float | None, advice: str = ""
) -> bool:
    """Returns True when every job has finished and its logs are printed, False after `timeout` seconds.

    While the cluster is unreachable it keeps trying; `advice` tells the user what to do meanwhile.
    """
    follower = _Follower(client, states, console)
    warnings = WatchWarnings(console, advice)
    logging.getLogger("trainwright").addHandler(warnings)
    try:
        async with asyncio.timeout(timeout):
            await follower.run()
    except TimeoutError:
        return False
    finally:
        logging.getLogger("trainwright").removeHandler(warnings)
        follower.show()
        console.live("")
    return True


class _Follower:
    def __init__(self, client: Client, states: Sequence[JobState], console: Console) -> None:
        self._client = client
        self._states = states
        self._console = console
        self._labels = _labels(states)
        self._logs: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._shown_phases: dict[str, str] = {}
        self._tasks: list[asyncio.Task[object]] = []
        self._pods_changed = asyncio.Event()

    async def run(self) -> None:
        try:
            self._watch()
            while not all(state.outcome for state in self._states):
                await asyncio.sleep(_REFRESH_SECONDS)
                self.show()
            await self._drain()
        finally:
            await _cancel([*self._tasks, *self._logs.values()])

    def show(self) -> None:
        """Prints what has changed since the last call."""
        for state in self._states:
            now, several = asyncio.get_running_loop().time(), len(self._states) > 1
            for warning in state.new_warnings(now, with_job_name=several):
                self._console.print(f"Warning: {warning}", colour="yellow")
            phases = state.phases()
            if phases and phases != self._shown_phases.get(state.uid):
                self._shown_phases[state.uid] = phases
                self._console.print(f"{state.name}: {phases}", colour="bright_black")
        live = [(self._prefix(state), progress_line(state.progress)) for state in self._states if not state.outcome]
        self._console.live("   ".join(f"{name}{line}" for name, line in live if line))

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
            Store[Object](metadata=raw_metadata),
            convert=_identity,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            on_change=on_change,
        )
        self._tasks.append(asyncio.create_task(reflector.run()))

    def _on_event(self, old: Object | None, new: Object | None) -> None:
        if new is None or new.get("type") != "Warning" or old is not None:
            return
        for state in self._states:
            state.add_warning(new, asyncio.get_running_loop().time())

    def _on_pod(self, state: JobState, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or new["metadata"]["uid"] != old["metadata"]["uid"]):
            state.remove_pod(old["metadata"]["uid"])
        if new is not None:
            state.update_pod(new)
            self._stream_logs(state, new)
        self._pods_changed.set()

    # Logs

    def _stream_logs(self, state: JobState, obj: Object) -> None:
        """Starts one stream per container and restart, once the container has started."""
        pod = read_pod(obj)
        if pod.metadata.controller is None or pod.metadata.controller.uid != state.uid:
            return
        for status in pod.status.container_statuses:
            key = (pod.metadata.uid, status.name, status.restart_count)
            started = status.state.running or status.state.terminated
            if started and key not in self._logs:
                source = _LogSource(state, state.label(pod), pod.metadata.uid, pod.name, status.name)
                previous = self._logs.get((*key[:2], status.restart_count - 1))
                self._logs[key] = asyncio.create_task(self._stream_log(source, previous))

    async def _stream_log(self, source: "_LogSource", previous: "asyncio.Task[None] | None") -> None:
        """Prints a container's log to its end, and reconnects whenever the connection breaks."""
        if previous:
            await asyncio.wait({previous}, timeout=_LOG_END_SECONDS)
        position = LogPosition()
        for pause in itertools.chain((0.1, 0.2, 0.5, 1.0), itertools.repeat(2.0)):
            position.resume()
            try:
                async for raw in self._client.logs(
                    source.pod,
                    namespace=source.state.namespace,
                    container=source.container,
                    follow=True,
                    timestamps=True,
                    since_time=position.since_time,
                ):
                    timestamp, line = _split_timestamp(raw)
                    if position.is_new(timestamp):
                        self._print_line(source, line)
                return
            except Unreachable:
                await asyncio.sleep(pause)
            except ApiError as error:
                # The pod was deleted, or its node cannot provide the log: the command continues.
                if error.code != 404:
                    self._console.print(
                        f"Warning: failed to get the log of pod {source.pod}: {error.message}", colour="yellow"
                    )
                return

    def _print_line(self, source: "_LogSource", line: str) -> None:
        source.state.add_log_line(source.uid, line, asyncio.get_running_loop().time())
        label, number = self._labels.get((source.state.uid, source.label), (f"[{source.label}]", 0))
        self._console.print_log(label, number, line)

    async def _drain(self) -> None:
        """Waits for the end of the logs of finished pods; other pods may keep running."""
        await self._wait_for_pods(self._awaits_failed_pod, _FAILED_POD_SECONDS)
        await self._wait_for_pods(self._awaits_running_pods, _RUNNING_POD_SECONDS)
        ended = {pod.metadata.uid for state in self._states for _, pod in state.pods() if pod.finished}
        finished = [task for (uid, _, _), task in self._logs.items() if uid in ended]
        others = [task for task in self._logs.values() if task not in finished]
        if finished:
            await asyncio.wait(finished, timeout=_LOG_END_SECONDS)
        if others:
            await asyncio.wait(others, timeout=_OTHER_LOGS_SECONDS)

    async def _wait_for_pods(self, awaited: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while awaited():
                    self._pods_changed.clear()
                    await self._pods_changed.wait()

    def _awaits_failed_pod(self) -> bool:
        """A job's failure may arrive before that of its pod, because they come from different watches."""
        return any(state.outcome == "Failed" and not state.first_failure() for state in self._states)

    def _awaits_running_pods(self) -> bool:
        """Peers of the pod that decided about success usually end a moment later."""
        return any(state.outcome == "Succeeded" and state.leftover_pods() for state in self._states)

    def _prefix(self, state: JobState) -> str:
        return f"{state.name}: " if len(self._states) > 1 else ""


@dataclass(frozen=True, slots=True)
class _LogSource:
    """The container whose log a stream reads."""

    state: JobState
    label: str
    uid: str
    pod: str
    container: str


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


class LogPosition:
    """How far a log has been read, so that after a broken connection no line is missed or printed twice.

    Several lines may have the same timestamp; those with the last one are counted.
    """

    def __init__(self) -> None:
        self._last = ""
        self._seen = 0
        self._skip = 0

    @property
    def since_time(self) -> datetime | None:
        """Where to continue; None: at the beginning."""
        with contextlib.suppress(ValueError):
            return parse_time(self._last) if self._last else None
        return None

    def resume(self) -> None:
        """To be called before a new stream, which begins with the lines of the last timestamp or older ones."""
        self._skip = self._seen

    def is_new(self, timestamp: str) -> bool:
        if timestamp < self._last:
            return False
        if timestamp > self._last:
            self._last, self._seen, self._skip = timestamp, 1, 0
            return True
        if self._skip:
            self._skip -= 1
            return False
        self._seen += 1
        return True


def _labels(states: Sequence[JobState]) -> dict[tuple[str, str], tuple[str, int]]:
    """The label before each rank's log lines, all of one width, and the number of its colour."""
    names = {
        (state.uid, label): f"[{state.name}/{label}]" if len(states) > 1 else f"[{label}]"
        for state in states
        for label in state.labels
    }
    width = max(map(len, names.values()), default=0)
    return {key: (name.ljust(width), number) for number, (key, name) in enumerate(names.items())}


def _on_job(state: JobState, old: Object | None, new: Object | None) -> None:
    _ = old
    state.update_job(new)


def _identity(obj: Object) -> Object:
    return obj


def _split_timestamp(raw: bytes) -> tuple[str, str]:
    """Timestamp and text of a line of a log that was requested with timestamps."""
    timestamp, _, line = raw.decode(errors="replace").rstrip("\n").partition(" ")
    return timestamp, line


async def _cancel(tasks: Sequence["asyncio.Task[object] | asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
