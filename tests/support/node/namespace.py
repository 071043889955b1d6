"""One namespace on a node under test: what a case of `tests/node_behaviour` creates, reads and waits for."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.kubernetes.controlplane import binaries
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.client.exec_session import ExecResult
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, EVENTS, NAMESPACES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource

IMAGE = "trainwright/host:1"
"""This machine's files on the embedded node; on the kubelet an image with `sh`, the usual commands and `python3`."""

KUBELET = "kubelet"


@dataclass(frozen=True)
class RunningNode:
    """A cluster of one node, and how to reach it."""

    level: str
    """`kubelet`, or the sandbox of the embedded node."""
    client: Client
    kubeconfig: Path
    host_directory: Path
    """Below it are directories for hostPath volumes."""
    patience: float
    """Seconds after which a condition that a case waits for counts as never true."""
    processes: Callable[[], list[int]]
    """The processes of the cluster, without those of the pods."""


class NodeNamespace:
    """What every case gets as `node`."""

    def __init__(self, running: RunningNode, name: str) -> None:
        self._running = running
        self.name = name
        self.client = running.client
        self.level = running.level
        self.is_kubelet = running.level == KUBELET

    async def set_up(self) -> None:
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        with suppress(AlreadyExists):  # a controller creates it too, with a delay; pods are refused without it
            await self.make(SERVICE_ACCOUNTS, "default")

    async def tear_down(self) -> None:
        """Does not wait for the end of the pods: the next cases run meanwhile."""
        await self.client.delete(NAMESPACES, self.name)

    @property
    def host_directory(self) -> Path:
        """A directory of the machine that hostPath volumes of this case may use."""
        directory = self._running.host_directory / self.name
        directory.mkdir(exist_ok=True)
        directory.chmod(0o777)  # pods of an ordinary user write to it
        return directory

    # Objects

    async def make(self, resource: Resource, name: str, **fields: Any) -> Object:
        """Creates any object in the namespace; `metadata` adds labels or annotations to its name."""
        metadata = {"name": name, "namespace": self.name, **fields.pop("metadata", {})}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
        return await self.client.create(resource, body, namespace=self.name)

    async def config_map(self, name: str, **data: str) -> Object:
        return await self.make(CONFIG_MAPS, name, data=data)

    async def secret(self, name: str, **data: str) -> Object:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        return await self.make(SECRETS, name, data=encoded)

    async def pod(self, name: str, *containers: Object, metadata: Object | None = None, **spec: Any) -> Object:
        """Creates a pod; unless `spec` says otherwise, it does not restart and its processes get one second to end."""
        whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": list(containers), **spec}
        return await self.make(PODS, name, metadata=metadata or {}, spec=whole)

    async def delete(self, name: str, *, resource: Resource = PODS, **options: Any) -> None:
        await self.client.delete(resource, name, namespace=self.name, **options)

    # Waiting

    async def read(self, name: str, resource: Resource = PODS) -> Object | None:
        try:
            return await self.client.get(resource, name, namespace=self.name)
        except NotFound:
            return None

    async def until(self, name: str, done: Callable[[Object], object], *, resource: Resource = PODS) -> Object:
        """The object as soon as it exists and `done` is true of it."""
        found = await eventually(
            lambda: self.read(name, resource), lambda obj: obj and done(obj), seconds=self._running.patience
        )
        assert found is not None
        return found

    async def until_phase(self, name: str, phase: str) -> Object:
        """The pod in that phase; fails as soon as the pod has ended in another one."""
        ends = {phase, "Succeeded", "Failed"}
        pod = await self.until(name, lambda pod: pod["status"].get("phase") in ends)
        assert pod["status"]["phase"] == phase, pod["status"]
        return pod

    async def until_container(self, name: str, state: str, *, container: str = "main", reason: str = "") -> Object:
        """The state `running`, `waiting` or `terminated` of a container, with this reason if one is given."""

        def found(pod: Object) -> Object | None:
            current: Object = container_status(pod, container).get("state") or {}
            return current.get(state) if not reason or current.get(state, {}).get("reason") == reason else None

        result = found(await self.until(name, found))
        assert result is not None
        return result

    async def until_ready(self, name: str) -> Object:
        return await self.until(name, lambda pod: condition(pod, "Ready").get("status") == "True")

    async def until_gone(self, name: str, *, resource: Resource = PODS) -> None:
        await eventually(lambda: self.read(name, resource), lambda obj: obj is None, seconds=self._running.patience)

    async def until_event(self, name: str, reason: str, *, containing: str = "") -> Object:
        """The first event with that reason about the object of that name."""

        async def found() -> list[Object]:
            events = await self.events(name)
            return [one for one in events if one["reason"] == reason and containing in one["message"]]

        return (await eventually(found, bool, seconds=self._running.patience))[0]

    async def events(self, name: str) -> list[Object]:
        """The events about the object of that name, oldest first."""
        found = (await self.client.list(EVENTS, namespace=self.name)).items
        about = [one for one in found if one["involvedObject"].get("name") == name]
        return sorted(about, key=lambda one: int(one["metadata"]["resourceVersion"]))

    # Programs

    async def log(self, name: str, container: str = "main", **options: Any) -> str:
        lines = self.client.logs(name, namespace=self.name, container=container, **options)
        return b"".join([line async for line in lines]).decode()

    async def until_log(self, name: str, text: str, *, container: str = "main") -> str:
        """The log as soon as it contains the text; before that, the container may not run yet."""

        async def read() -> str:
            pod = await self.read(name)
            has_run = pod is not None and container_status(pod, container).get("containerID")
            return await self.log(name, container) if has_run else ""

        return await eventually(read, lambda log: text in log, seconds=self._running.patience)

    async def output(self, name: str, phase: str = "Succeeded", *, container: str = "main") -> str:
        """The log of a pod that runs to its end, which is that phase."""
        await self.until_phase(name, phase)
        return await self.log(name, container)

    async def exec(self, name: str, *command: str, container: str | None = None, **options: Any) -> ExecResult:
        return await self.client.exec(name, command, namespace=self.name, container=container, **options)

    async def start_kubectl(self, *arguments: str, stdin: bool = False) -> asyncio.subprocess.Process:
        """For commands that run until they are stopped."""
        return await asyncio.create_subprocess_exec(
            binaries() / "kubectl",
            f"--kubeconfig={self._running.kubeconfig}",
            f"--namespace={self.name}",
            *arguments,
            stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def kubectl(self, *arguments: str, stdin: bytes | None = None) -> tuple[int, str, str]:
        """Exit code, output and errors."""
        process = await self.start_kubectl(*arguments, stdin=stdin is not None)
        async with asyncio.timeout(self._running.patience):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


def container(script: str, *, name: str = "main", **fields: Any) -> Object:
    """A container that runs a POSIX shell script: `dash` on the embedded node, busybox on the kubelet."""
    return {"name": name, "image": IMAGE, "command": ["sh", "-c", script], **fields}


def python(program: str, *, name: str = "main", **fields: Any) -> Object:
    """A container that runs a Python program with the standard library alone."""
    return {"name": name, "image": IMAGE, "command": ["python3", "-u", "-c", program], **fields}


def container_status(pod: Object, name: str = "main") -> Object:
    """The status of a container or init container; empty if there is none yet."""
    status = pod.get("status") or {}
    for kind in ("containerStatuses", "initContainerStatuses"):
        for one in status.get(kind) or []:
            if one["name"] == name:
                found: Object = one
                return found
    return {}


def terminated(pod: Object, name: str = "main") -> Object:
    found: Object = container_status(pod, name)["state"]["terminated"]
    return found


def condition(pod: Object, kind: str) -> Object:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})


def conditions(pod: Object) -> Mapping[str, str]:
    return {one["type"]: one["status"] for one in pod["status"].get("conditions") or []}
