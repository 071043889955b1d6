"""The pod `training-operator-0` in the namespace `kubeflow`, by which people look for the operator and its log.

It is a mirror pod: it shows the operator inside the process of `up` and has no process of its own. If it is deleted, it
is created again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime

from trainwright import __version__
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_NAME
from trainwright.objects.kinds.pod_subresources import LogOptions
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from trainwright.objects.times import format_micro_time, format_time

log = logging.getLogger(__name__)

NAMESPACE, NAME = "kubeflow", "training-operator-0"
_NAMESPACES = (NAMESPACE, "mpi-operator")
_ACCOUNT = "pytorch-operator"
"""Old manifests run other programs under the account of the operator."""

_CONTAINER = "training-operator"
_LABELS = {
    "app.kubernetes.io/name": "training-operator",
    "control-plane": "kubeflow-training-operator",
    "name": "tf-job-operator",
}
"""The labels by which the documentation of Kubeflow's operators, old and new, selects the pod."""

_MOST_LINES = 2000


async def create_operator_objects(client: Client) -> None:
    """The namespaces and the account that an installation of Kubeflow's operators has."""
    for name in _NAMESPACES:
        with suppress(AlreadyExists):
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": NAMESPACE}}
    with suppress(AlreadyExists):
        await client.create(SERVICE_ACCOUNTS, account)


class OperatorPod:
    """Keeps the pod that the operator seems to run in."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._started = format_time(datetime.now(UTC))
        self._pods = Store[Object]()
        self._controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(
                    client,
                    PODS,
                    self._pods,
                    namespace=NAMESPACE,
                    field_selector=f"metadata.name={NAME}",
                    on_change=lambda _before, _after: self._controller.queue.add(NAME),
                )
            ],
            workers=1,
        )

    async def run(self) -> None:
        self._controller.queue.add(NAME)
        await self._controller.run()

    async def _reconcile(self, _key: str) -> None:
        pod = self._pods.get(f"{NAMESPACE}/{NAME}")
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            # What the kubelet does when the processes of a pod have ended.
            with suppress(NotFound):
                uid = pod["metadata"]["uid"]
                await self._client.delete(PODS, NAME, namespace=NAMESPACE, uid=uid, grace_period_seconds=0)
            return
        if pod is None:
            pod = await self._client.create(PODS, _render())
            self._pods.remember(pod)
        status = _status(self._started)
        if {key: pod["status"].get(key) for key in status} != status:
            patch: Object = {"status": status}
            self._pods.remember(await self._client.patch(PODS, NAME, patch, namespace=NAMESPACE, subresource="status"))


def _render() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": _LABELS,
            "annotations": {MIRROR: "operator", "kubernetes.io/config.source": "trainwright"},
        },
        "spec": {
            "nodeName": NODE_NAME,
            "containers": [{"name": _CONTAINER, "image": f"trainwright:{__version__}", "imagePullPolicy": "Never"}],
        },
    }


def _status(started: str) -> Object:
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": started,
        "conditions": [
            {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": started}
            for name in conditions
        ],
        "containerStatuses": [
            {
                "name": _CONTAINER,
                "image": f"trainwright:{__version__}",
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            }
        ],
    }


class OperatorLog(logging.Handler):
    """The latest lines of the operator's log, as the log of its pod."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines: deque[tuple[int, datetime, bytes]] = deque(maxlen=_MOST_LINES)
        self._written = 0
        self._changed = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self._written += 1
        line = (self.format(record) + "\n").encode()
        self._lines.append((self._written, datetime.fromtimestamp(record.created, UTC), line))
        self._changed.set()

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        _ = pod, container
        return self._read(options)

    async def _read(self, options: LogOptions) -> AsyncGenerator[bytes, None]:
        lines = [line for line in self._lines if options.since is None or line[1] >= options.since]
        if options.tail_lines is not None:
            lines = lines[len(lines) - min(options.tail_lines, len(lines)) :]
        left, seen = options.limit_bytes, self._written
        while True:
            for _, moment, line in lines:
                text = (format_micro_time(moment).encode() + b" " if options.timestamps else b"") + line
                yield text if left is None else text[:left]
                left = None if left is None else left - len(text)
                if left is not None and left <= 0:
                    return
            if not options.follow:
                return
            while self._written == seen:
                self._changed.clear()
                await self._changed.wait()
            lines, seen = [line for line in self._lines if line[0] > seen], self._written
