"""Follows jobs on any cluster to their end: watches them, their pods and events, and streams all logs.

What was seen goes to the jobs' stories; what they answer goes to the console, a few times a second.
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
from trainwright.cli.follow.job_state import JobStory
from trainwright.cli.follow.messages import progress_line
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.pods import read_pod
from trainwright.objects.resources import EVENTS, PODS, Resource
from trainwright.objects.times import parse_time

_TICK_SECONDS = 0.15
_DRAIN_SECONDS = 5.0
_LINGER_SECONDS = 0.5
_LEARN_SECONDS = 2.0


async def follow(
    client: Client, stories: Sequence[JobStory], console: Console, *, timeout: float | None, advice: str = ""
) -> bool:
    """Returns when every job is over and its logs are shown: True, or False if that took longer than `timeout`.

    A cluster that does not answer is waited for; `advice` says what the user can do meanwhile.
    """
    follower = _Follower(client, stories, console)
    trouble = TroubleShown(console, advice)
    logging.getLogger("trainwright").addHandler(trouble)
    try:
        async with asyncio.timeout(timeout):
            await follower.run()
    except TimeoutError:
        return False
    finally:
        logging.getLogger("trainwright").removeHandler(trouble)
        follower.show()
        console.live("")
    return True


class _Follower:
    def __init__(self, client: Client, stories: Sequence[JobStory], console: Console) -> None:
        self._client = client
        self._stories = stories
        self._console = console
        self._labels = _labels(stories)
        self._logs: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._shown_phases: dict[str, str] = {}
        self._tasks: list[asyncio.Task[object]] = []
        self._pod_news = asyncio.Event()

    async def run(self) -> None:
        try:
            self._watch()
            while not all(story.outcome for story in self._stories):
                await asyncio.sleep(_TICK_SECONDS)
                self.show()
            await self._drain()
        finally:
            await _cancelled([*self._tasks, *self._logs.values()])

    def show(self) -> None:
        """Shows what has changed since the last time."""
        for story in self._stories:
            now, several = asyncio.get_running_loop().time(), len(self._stories) > 1
            for warning in story.new_warnings(now, among_others=several):
                self._console.say(f"Warning: {warning}", colour="yellow")
            phases = story.phases()
            if phases and phases != self._shown_phases.get(story.uid):
                self._shown_phases[story.uid] = phases
                self._console.say(f"{story.name}: {phases}", colour="bright_black")
        live = [(self._of(story), progress_line(story.progress)) for story in self._stories if not story.outcome]
        self._console.live("   ".join(f"{name}{line}" for name, line in live if line))

    # Watching

    def _watch(self) -> None:
        for namespace in {story.namespace for story in self._stories}:
            self._reflect(EVENTS, self._event_seen, namespace=namespace)
        for story in self._stories:
            self._reflect(
                story.kind.resource,
                partial(_job_seen, story),
                namespace=story.namespace,
                field_selector=f"metadata.name={story.name}",
            )
            self._reflect(
                PODS,
                partial(self._pod_seen, story),
                namespace=story.namespace,
                label_selector=f"{JOB_NAME}={story.name}",
            )

    def _reflect(
        self,
        resource: Resource,
        seen: Callable[[Object | None, Object | None], None],
        *,
        namespace: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        reflector = Reflector(
            self._client,
            resource,
            Store[Object](metadata=raw_metadata),
            convert=_as_it_is,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            on_change=seen,
        )
        self._tasks.append(asyncio.create_task(reflector.run()))

    def _event_seen(self, old: Object | None, new: Object | None) -> None:
        if new is None or new.get("type") != "Warning" or old is not None:
            return
        for story in self._stories:
            story.see_warning(new, asyncio.get_running_loop().time())

    def _pod_seen(self, story: JobStory, old: Object | None, new: Object | None) -> None:
        if old is not None and (new is None or new["metadata"]["uid"] != old["metadata"]["uid"]):
            story.lose_pod(old["metadata"]["uid"])
        if new is not None:
            story.see_pod(new)
            self._stream_logs(story, new)
        self._pod_news.set()

    # Logs

    def _stream_logs(self, story: JobStory, obj: Object) -> None:
        """One stream for every run of every container that has begun to print."""
        pod = read_pod(obj)
        if pod.metadata.controller is None or pod.metadata.controller.uid != story.uid:
            return
        for status in pod.status.container_statuses:
            key = (pod.metadata.uid, status.name, status.restart_count)
            begun = status.state.running or status.state.terminated
            if begun and key not in self._logs:
                speaker = _Speaker(story, story.label(pod), pod.metadata.uid, pod.name, status.name)
                before = self._logs.get((*key[:2], status.restart_count - 1))
                self._logs[key] = asyncio.create_task(self._log(speaker, before))

    async def _log(self, speaker: "_Speaker", before: "asyncio.Task[None] | None") -> None:
        """Shows a container's output to its end, however often the connection breaks."""
        if before:
            await asyncio.wait({before}, timeout=_DRAIN_SECONDS)
        position = LogPosition()
        for pause in itertools.chain((0.1, 0.2, 0.5, 1.0), itertools.repeat(2.0)):
            position.resume()
            try:
                async for raw in self._client.logs(
                    speaker.pod,
                    namespace=speaker.story.namespace,
                    container=speaker.container,
                    follow=True,
                    timestamps=True,
                    since_time=position.moment,
                ):
                    stamp, line = _stamped(raw)
                    if position.is_new(stamp):
                        self._heard(speaker, line)
                return
            except Unreachable:
                await asyncio.sleep(pause)
            except ApiError as error:
                # The pod has been deleted, or its node cannot give its output: no reason to end the command.
                if error.code != 404:
                    self._console.say(f"Warning: no output of {speaker.pod}: {error.message}", colour="yellow")
                return

    def _heard(self, speaker: "_Speaker", line: str) -> None:
        speaker.story.hear(speaker.uid, line, asyncio.get_running_loop().time())
        label, number = self._labels.get((speaker.story.uid, speaker.label), (f"[{speaker.label}]", 0))
        self._console.log(label, number, line)

    async def _drain(self) -> None:
        """Lets the logs of containers that have ended come to their end; others run on, without us."""
        await self._learn_of_failures()
        ended = {pod.metadata.uid for story in self._stories for _, pod in story.pods() if pod.finished}
        finished = [task for (uid, _, _), task in self._logs.items() if uid in ended]
        others = [task for task in self._logs.values() if task not in finished]
        if finished:
            await asyncio.wait(finished, timeout=_DRAIN_SECONDS)
        if others:
            await asyncio.wait(others, timeout=_LINGER_SECONDS)

    async def _learn_of_failures(self) -> None:
        """A job may be seen to fail a moment before the pod is that it failed for: they come by different watches."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEARN_SECONDS):
                while any(story.outcome == "Failed" and not story.first_failure() for story in self._stories):
                    self._pod_news.clear()
                    await self._pod_news.wait()

    def _of(self, story: JobStory) -> str:
        return f"{story.name}: " if len(self._stories) > 1 else ""


@dataclass(frozen=True, slots=True)
class _Speaker:
    """Whose output a log stream carries."""

    story: JobStory
    label: str
    uid: str
    pod: str
    container: str


class TroubleShown(logging.Handler):
    """Shows what the watches log about a cluster that does not answer; the same trouble of several of them once."""

    def __init__(self, console: Console, advice: str = "") -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._advice = advice
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        _, _, trouble = record.getMessage().partition(": ")  # before it stands which watch it was
        if trouble and trouble not in self._shown:
            self._shown.add(trouble)
            self._console.say(f"Warning: {trouble}", colour="yellow")
            if self._advice and len(self._shown) == 1:
                self._console.say(f"  {self._advice}")


class LogPosition:
    """How far a log has been read, so that after a broken connection no line is missed or shown twice.

    Lines that were written at once have equal stamps: how many of the last one have been seen is counted.
    """

    def __init__(self) -> None:
        self._last = ""
        self._seen = 0
        self._again = 0

    @property
    def moment(self) -> datetime | None:
        """From where to read on; None: from the beginning."""
        with contextlib.suppress(ValueError):
            return parse_time(self._last) if self._last else None
        return None

    def resume(self) -> None:
        """The stream begins anew: with lines of the last stamp, or with even older ones."""
        self._again = self._seen

    def is_new(self, stamp: str) -> bool:
        if stamp < self._last:
            return False
        if stamp > self._last:
            self._last, self._seen, self._again = stamp, 1, 0
            return True
        if self._again:
            self._again -= 1
            return False
        self._seen += 1
        return True


def _labels(stories: Sequence[JobStory]) -> dict[tuple[str, str], tuple[str, int]]:
    """What stands before each rank's lines, of one width, and the number of its colour."""
    names = {
        (story.uid, label): f"[{story.name}/{label}]" if len(stories) > 1 else f"[{label}]"
        for story in stories
        for label in story.labels
    }
    width = max(map(len, names.values()), default=0)
    return {key: (name.ljust(width), number) for number, (key, name) in enumerate(names.items())}


def _job_seen(story: JobStory, old: Object | None, new: Object | None) -> None:
    _ = old
    story.see_job(new)


def _as_it_is(obj: Object) -> Object:
    return obj


def _stamped(raw: bytes) -> tuple[str, str]:
    """A line that was asked for with timestamps, taken apart."""
    stamp, _, line = raw.decode(errors="replace").rstrip("\n").partition(" ")
    return stamp, line


async def _cancelled(tasks: Sequence["asyncio.Task[object] | asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
