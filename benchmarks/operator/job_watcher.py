"""Watches the children and conditions of jobs while an operator is measured.

Children are watched as PartialObjectMetadata, which no contender requests: so no contender profits from the server's
cached encodings of these watches.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing

import aiohttp
import msgspec

from trainwright.kube.client import requests, responses
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.credentials import Credentials, tls_context
from trainwright.objects.resources import PODS, SERVICES, Resource

JOB_NAME = "training.kubeflow.org/job-name"
_BARE_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class JobWatcher:
    """Runs as a task; `until` waits for a condition on what it has seen."""

    def __init__(self, client: Client, jobs: Resource, *, namespace: str) -> None:
        self._client = client
        self._jobs = jobs
        self._namespace = namespace
        self.pods: dict[str, list[float]] = {}
        """The times at which the pods of each job appeared, by the job's name."""
        self.pod_names: list[str] = []
        self.services = 0
        self.reached: Counter[str] = Counter()
        """The number of jobs that have had each condition."""
        self._conditions: dict[str, set[str]] = {}
        self._changed = asyncio.Event()

    @property
    def seen(self) -> str:
        return f"{len(self.pod_names)} pods, {self.services} services, jobs {dict(self.reached)}"

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_children(PODS, self._add_pod))
            group.create_task(self._watch_children(SERVICES, self._add_service))
            group.create_task(self._watch_jobs())

    async def until(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Waits until the condition is true, which is checked after every change; False after so many seconds."""
        deadline = time.monotonic() + seconds
        while not condition():
            self._changed.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                return condition()
        return True

    async def _watch_children(self, resource: Resource, add: Callable[["_Metadata"], None]) -> None:
        config = self._client.config
        headers = {**Credentials(config).headers(), "Accept": _BARE_METADATA}
        connector = aiohttp.TCPConnector(ssl=tls_context(config) or True)
        timeout = aiohttp.ClientTimeout(total=None)
        version = ""
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
            while True:  # the server closes a watch whose client reads too slowly
                request = requests.watch_request(
                    resource, namespace=self._namespace, label_selector=JOB_NAME, resource_version=version
                )
                async with session.get(config.server + request.target) as answer:
                    answer.raise_for_status()
                    splitter = responses.LineSplitter()
                    async for chunk in answer.content.iter_any():
                        for line in splitter.feed(chunk):
                            event = _child_decoder.decode(line)
                            version = event.object.metadata.resource_version
                            if event.type == "ADDED":
                                add(event.object.metadata)
                                self._changed.set()

    def _add_pod(self, pod: "_Metadata") -> None:
        self.pods.setdefault(pod.labels[JOB_NAME], []).append(time.monotonic())
        self.pod_names.append(pod.name)

    def _add_service(self, service: "_Metadata") -> None:
        _ = service
        self.services += 1

    async def _watch_jobs(self) -> None:
        version = ""
        while True:
            request = requests.watch_request(self._jobs, namespace=self._namespace, resource_version=version)
            async with aclosing(self._client.stream_lines(request)) as lines:
                async for line in lines:
                    job = _job_decoder.decode(line).object
                    version = job.metadata.resource_version
                    held = {condition.type for condition in job.status.conditions if condition.status == "True"}
                    known = self._conditions.setdefault(job.metadata.name, set())
                    self.reached.update(held - known)
                    known |= held
                    self._changed.set()


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str
    labels: dict[str, str] = {}


class _Child(msgspec.Struct):
    metadata: _Metadata


class _ChildEvent(msgspec.Struct):
    type: str
    object: _Child


class _Condition(msgspec.Struct):
    type: str
    status: str


class _JobStatus(msgspec.Struct):
    conditions: list[_Condition] = []


class _Job(msgspec.Struct):
    metadata: _Metadata
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


class _JobEvent(msgspec.Struct):
    object: _Job


_child_decoder = msgspec.json.Decoder(_ChildEvent)
_job_decoder = msgspec.json.Decoder(_JobEvent)
