"""Pods on the embedded node and on a real kubelet in the same run: latency, rates, a small job, memory, idle CPU."""

import asyncio
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.namespace import NAMESPACE, create_namespace
from benchmarks.processes import TRAINWRIGHT, cpu_seconds, proportional_megabytes
from tests.support.kubernetes.controlplane import Daemon, newest_build
from tests.support.node.embedded_node import embedded_node
from tests.support.node.namespace import IMAGE, RunningNode, condition
from tests.support.node.real_cluster import real_cluster
from trainwright.api.crd import render_crd
from trainwright.api.kinds import PYTORCH
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, PODS, Resource

ROUNDS = 5
PODS_AT_ONCE = 40
READY_AT_ONCE = 30
IDLE_SECONDS = 10.0
REQUESTS = 2000
SECONDS = 300.0


@dataclass(frozen=True)
class Figures:
    one_pod: float
    true_pods: float
    ready_pods: float
    job: float
    requests: float
    memory: float
    pod_memory: float
    idle: float


_LABELS = {
    "one_pod": ("one pod, created to Running", "ms"),
    "true_pods": (f"{PODS_AT_ONCE} pods of `true`, created to Succeeded", "pods/s"),
    "ready_pods": (f"{READY_AT_ONCE} pods, created to Ready", "pods/s"),
    "job": ("PyTorchJob of 1+2 `true`, created to Succeeded", "ms"),
    "requests": ("API requests (create, get, patch, delete)", "per CPU s"),
    "memory": ("memory of the cluster (PSS), no pods", "MB"),
    "pod_memory": ("memory of the cluster (PSS) for each pod that sleeps", "MB"),
    "idle": (f"CPU with {READY_AT_ONCE} pods that sleep", "% of a core"),
}


def main() -> None:
    contenders: dict[str, Callable[[Path], Any]] = {"embedded": embedded}
    try:
        if os.getuid() != 0 or shutil.which("containerd") is None:
            raise RuntimeError("it needs root and containerd")
        newest_build("node", "run tools/build-node")
        contenders["kubelet"] = _kubelet
    except RuntimeError as error:
        print(f"without the kubelet: {error}")
    results = {name: _in_a_thread(_measure(start)) for name, start in contenders.items()}
    names = [*results, *(["ratio"] if len(results) > 1 else [])]
    print(" " * 66 + "".join(f"{name:>12}" for name in names))
    rows = zip(*(astuple(figures) for figures in results.values()), strict=True)
    for field, values in zip(fields(Figures), rows, strict=True):
        label, unit = _LABELS[field.name]
        ratio = f"{values[0] / values[1]:>11.2f}x" if len(values) > 1 and values[1] else ""
        print(f"{label:52}{unit:14}" + "".join(f"{value:>12.1f}" for value in values) + ratio)


def _in_a_thread(work: Coroutine[Any, Any, Figures]) -> Figures:
    """A thread that has entered the network of a real cluster does not come back."""
    results: list[Figures | BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


@asynccontextmanager
async def embedded(directory: Path) -> AsyncIterator[RunningNode]:
    """`trainwright up` has CRDs and operator."""
    async with embedded_node("overlay", directory) as running:
        yield running


@asynccontextmanager
async def _kubelet(directory: Path) -> AsyncIterator[RunningNode]:
    async with real_cluster(directory) as running:
        await running.client.create(CUSTOM_RESOURCE_DEFINITIONS, render_crd(PYTORCH))
        with _operator(running, directory):
            yield running


@contextmanager
def _operator(running: RunningNode, directory: Path) -> Any:
    flags = [f"--kubeconfig={running.kubeconfig}", "--enable-scheme=PyTorchJob"]
    images = [f"--pytorch-init-container-image={IMAGE}"]
    operator = Daemon(*TRAINWRIGHT, "operator", *flags, *images, log=directory / "operator.log")
    try:
        yield
    finally:
        operator.close()


async def _measure(start: Callable[[Path], Any]) -> Figures:
    with tempfile.TemporaryDirectory() as name:
        async with AsyncExitStack() as stack:
            running: RunningNode = await stack.enter_async_context(start(Path(name)))
            client = running.client
            await create_namespace(client, PYTORCH.resource)
            await asyncio.sleep(IDLE_SECONDS)  # the components start
            memory = _megabytes(running)
            watching = asyncio.create_task((watched := WatchedPods(client)).run())
            await watched.pods(1, "warm-up", ["true"], _succeeded)
            single = [await watched.pods(1, f"one-{number}", ["sleep", "600"], _is_running) for number in range(ROUNDS)]
            true_pods = PODS_AT_ONCE / await watched.pods(PODS_AT_ONCE, "true", ["true"], _succeeded)
            jobs = [await watched.job(f"job-{number}") for number in range(ROUNDS)]
            requests = await _requests_per_cpu_second(running)
            await watched.all_gone()
            empty = _megabytes(running)
            ready = READY_AT_ONCE / await watched.pods(READY_AT_ONCE, "ready", ["sleep", "600"], is_ready)
            await asyncio.sleep(IDLE_SECONDS)
            pod_memory = (_megabytes(running) - empty) / READY_AT_ONCE
            before = _cpu(running)
            await asyncio.sleep(IDLE_SECONDS)
            idle = (_cpu(running) - before) / IDLE_SECONDS * 100
            watching.cancel()
            one_pod, job = (statistics.median(seconds) * 1000 for seconds in (single, jobs))
            return Figures(one_pod, true_pods, ready, job, requests, memory, pod_memory, idle)


async def _requests_per_cpu_second(running: RunningNode) -> float:
    """Of all processes of the cluster together."""
    client, places = running.client, asyncio.Semaphore(16)

    async def one(name: str) -> None:
        async with places:
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}
            await client.create(CONFIG_MAPS, body, namespace=NAMESPACE)
            await client.get(CONFIG_MAPS, name, namespace=NAMESPACE)
            await client.patch(CONFIG_MAPS, name, {"data": {"key": "other"}}, namespace=NAMESPACE)
            await client.delete(CONFIG_MAPS, name, namespace=NAMESPACE)

    before = _cpu(running)
    await asyncio.gather(*(one(f"c-{number}") for number in range(REQUESTS // 4)))
    return REQUESTS / (_cpu(running) - before)


def _megabytes(running: RunningNode) -> float:
    return sum(proportional_megabytes(pid) for pid in running.processes())


def _cpu(running: RunningNode) -> float:
    return sum(cpu_seconds(pid) for pid in running.processes())


class WatchedPods:
    """Pods and jobs as a watch shows them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._objects: dict[tuple[str, str], Object] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for resource in (PODS, PYTORCH.resource):
                group.create_task(self._watch(resource))

    async def _watch(self, resource: Resource) -> None:
        listed = await self._client.list(resource, namespace=NAMESPACE)
        version = listed.resource_version
        while True:
            events = self._client.watch(resource, namespace=NAMESPACE, resource_version=version)
            async with aclosing(events) as stream:
                async for event in stream:
                    metadata = event.object["metadata"]
                    version = metadata["resourceVersion"]
                    key = (resource.kind, metadata["name"])
                    if event.type == "DELETED":
                        self._objects.pop(key, None)
                    else:
                        self._objects[key] = event.object
                    self._changed.set()

    async def _until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    async def pods(self, count: int, name: str, command: list[str], done: Callable[[Object], bool]) -> float:
        """Seconds from the first creation until all of them are done."""
        names = [f"{name}-{number}" for number in range(count)]
        started = time.monotonic()
        await asyncio.gather(*(self._client.create(PODS, _pod(one, command), namespace=NAMESPACE) for one in names))
        await self._until(lambda: all(done(self._objects.get(("Pod", one), {})) for one in names))
        return time.monotonic() - started

    async def job(self, name: str) -> float:
        started = time.monotonic()
        await self._client.create(PYTORCH.resource, _job(name), namespace=NAMESPACE)
        await self._until(lambda: _job_succeeded(self._objects.get(("PyTorchJob", name), {})))
        return time.monotonic() - started

    async def all_gone(self) -> None:
        """Deletes all jobs and pods and waits for their end."""
        for kind, name in list(self._objects):
            with suppress(NotFound):
                resource = PODS if kind == "Pod" else PYTORCH.resource
                await self._client.delete(resource, name, namespace=NAMESPACE)
        await self._until(lambda: not self._objects)


def _pod(name: str, command: list[str]) -> Object:
    container = {"name": "main", "image": IMAGE, "command": command}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _job(name: str) -> Object:
    template = {"spec": {"containers": [{"name": "pytorch", "image": IMAGE, "command": ["true"]}]}}
    role = {"restartPolicy": "Never", "template": template}
    specs = {"Master": {"replicas": 1, **role}, "Worker": {"replicas": 2, **role}}
    return {
        "apiVersion": PYTORCH.resource.api_version,
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": specs},
    }


def _succeeded(pod: Object) -> bool:
    return bool(pod) and pod.get("status", {}).get("phase") == "Succeeded"


def _is_running(pod: Object) -> bool:
    return bool(pod) and pod.get("status", {}).get("phase") == "Running"


def is_ready(pod: Object) -> bool:
    return bool(pod) and condition(pod, "Ready").get("status") == "True"


def _job_succeeded(job: Object) -> bool:
    return bool(job) and condition(job, "Succeeded").get("status") == "True"
