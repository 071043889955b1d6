"""Keeps the pods of this node as the API wants them: one level-triggered step per pod and occasion.

An occasion is a change of the Pod object, a word from its supervisor, or its supervisor's end. What is decided lies in
`resolve`, `lifecycle` and `status`; here it is carried out.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwright.cluster.node.network.hosts import hostname, unresolved_names
from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.cluster.node.node_status import HOST_ADDRESS, Machine
from trainwright.cluster.node.pods.pod_directory import PodDirectory, Supervision, pod_directories
from trainwright.cluster.node.pods.pod_setup import set_up_pod
from trainwright.cluster.node.pods.pod_status import empty_state, pod_status, same_status, transitions
from trainwright.cluster.node.pods.runtime_config import Facts, Notice, Problem, Resolved, resolve
from trainwright.cluster.node.referenced_objects import ReferencedObjects, referenced_names
from trainwright.cluster.node.supervisor import container_status
from trainwright.cluster.node.supervisor.processes import kill_orphans
from trainwright.cluster.node.supervisor.sandbox import PLAIN
from trainwright.cluster.node.supervisor.sandbox_detection import Sandbox
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.node_annotations import SANDBOX
from trainwright.objects.resources import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    Resource,
)

log = logging.getLogger(__name__)

_SECONDS_TO_FIRST_WORD = 0.3
"""A supervisor speaks when its first container runs; a pod that takes longer is shown as being created."""
_SECONDS_BETWEEN_TRIES = 1.0
_SECONDS_FOR_NAMES = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where pods run."""

    node_name: str
    directory: Path
    sandbox: Sandbox
    python: str
    supervisor_python: str
    machine: Machine
    home: str


class PodKeeper:
    def __init__(
        self,
        client: Client,
        place: Place,
        network: PodNetwork,
        recorder: EventRecorder,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._place = place
        self._network = network
        self._recorder = recorder
        self._clock = clock
        self.queue = WorkQueue[str](longest_delay=10.0)
        self._supervisions: dict[str, Supervision] = {}
        self._first_seen: dict[str, float] = {}
        self._waiting_for_names: set[str] = set()
        self._reported = Deduplicator[str, Notice]()
        self.store: Store[Object] = Store(
            metadata=raw_metadata, indexes={"uid": lambda pod: [str(pod["metadata"]["uid"])]}
        )

    def load(self) -> None:
        """Before anything is seen: the addresses of pods that an earlier agent started stay theirs. Workers start when
        the store is complete, so pods that are not in it then are gone."""
        for uid, directory in pod_directories(self._place.directory).items():
            self.queue.add(uid)
            if (pod := directory.pod) is not None:
                self._network.reserve(uid, str(pod["address"]))

    def close(self) -> None:
        """The pods go on running."""
        loop = asyncio.get_running_loop()
        for supervision in self._supervisions.values():
            loop.remove_reader(supervision.descriptor)
            os.close(supervision.descriptor)
        self._supervisions.clear()

    def on_change(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._network.remove_pod(before["metadata"]["uid"])
            self.queue.add(before["metadata"]["uid"])
        if after is not None:
            uid = after["metadata"]["uid"]
            self._first_seen.setdefault(uid, time.monotonic())
            if _finished(after):
                self._network.remove_pod(uid)
            else:
                self._network.add_pod(after)
            self.queue.add(uid)

    def on_names_changed(self) -> None:
        for uid in self._waiting_for_names:
            self.queue.add(uid)

    def poke(self, uid: str) -> None:
        """A word from the supervisor of this pod; of a pod that is not known here it would name a directory."""
        if self.store.by_index("uid", uid):
            self.queue.add(uid)

    def on_error(self, uid: str, error: Exception) -> None:
        for pod in self.store.by_index("uid", uid):
            self._tell_once(pod, [Notice("NodeError", f"{type(error).__name__}: {error}")])

    async def sync(self, uid: str) -> Outcome:
        outcome: Outcome = Done()
        pods = self.store.by_index("uid", uid)
        directory = self._directory_of(uid)
        supervision = self._supervisions.get(uid) or self._adopt(uid, directory)
        if not pods:
            await self._clear(uid, directory, supervision)
            return outcome
        pod = pods[0]
        deleting = pod["metadata"].get("deletionTimestamp") is not None
        problems: tuple[Problem, ...] = ()
        if supervision is None and not _finished(pod):
            state = directory.state
            if state is not None and state["finished"]:
                pass
            elif directory.supervised_before or _has_run(pod):
                self._lose(pod, directory, deleting=deleting)
            elif not deleting:
                try:
                    problems = await self._try_start(pod, directory)
                except OSError as error:  # the disk is full, no process can be started
                    text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                    problems = (Problem(reason="FailedCreatePodSandBox", message=text),)
                    self._tell_problems(pod, problems)
                if not problems:
                    return RequeueAfter(_SECONDS_TO_FIRST_WORD)
                outcome = RequeueAfter(_SECONDS_BETWEEN_TRIES)
        elif supervision is not None and deleting:
            self._stop_pod(pod, directory, supervision)
        state = directory.state
        if state is not None or not deleting:
            pod = await self._mirror(pod, state, problems)
        if deleting and uid not in self._supervisions:
            await self._confirm_deletion(pod)
        return outcome

    def _directory_of(self, uid: str) -> PodDirectory:
        return PodDirectory(self._place.directory / "pods" / uid)

    # Supervisors

    def _adopt(self, uid: str, directory: PodDirectory) -> Supervision | None:
        found = directory.find_supervision()
        if found is not None:
            self._watch(uid, found)
        return found

    def _watch(self, uid: str, supervision: Supervision) -> None:
        self._supervisions[uid] = supervision
        asyncio.get_running_loop().add_reader(supervision.descriptor, self._on_end, uid)

    def _on_end(self, uid: str) -> None:
        supervision = self._supervisions.pop(uid)
        asyncio.get_running_loop().remove_reader(supervision.descriptor)
        supervision.reap()
        directory = self._directory_of(uid)
        if not directory.supervised_before:
            text = f"the supervisor ended: {directory.last_words}"
            for pod in self.store.by_index("uid", uid):
                self._tell_once(pod, [Notice("FailedCreatePodSandBox", text)])
        finished = bool((directory.state or {}).get("finished"))
        # One that broke at once would be followed by others that do.
        pause = 0.0 if finished else _SECONDS_BETWEEN_TRIES - (time.monotonic() - supervision.since)
        self.queue.add_after(uid, pause)

    def _supervise(self, uid: str, directory: PodDirectory) -> None:
        self._watch(uid, directory.supervise(self._place.supervisor_python))

    def _lose(self, pod: Object, directory: PodDirectory, *, deleting: bool) -> None:
        """The supervisor is gone without a last word: the machine was restarted, or somebody killed it."""
        policy = container_status.NEVER if deleting else pod["spec"].get("restartPolicy") or container_status.ALWAYS
        started = directory.pod
        state = directory.state or empty_state(pod)
        for record in [*state["initContainers"], *state["containers"]] if started else []:
            if "running" in record["state"] and record.get("process"):
                kill_orphans(record["process"], variable=f"HOSTNAME={hostname(pod)}")
        now = container_status.timestamp(time.time_ns())
        state = container_status.without_supervisor(state, policy if started else container_status.NEVER, now)
        directory.write_state(state)
        if not state["finished"]:
            self._supervise(pod["metadata"]["uid"], directory)

    def _stop_pod(self, pod: Object, directory: PodDirectory, supervision: Supervision) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if supervision.stop_seconds is not None and supervision.stop_seconds <= grace:
            return
        told_before = directory.told_to_stop
        directory.stop(supervision, float(grace))
        if not told_before:
            names = ", ".join(container["name"] for container in pod["spec"]["containers"])
            self._recorder.record(pod, "Normal", "Killing", f"Stopping container {names}")

    # Starting

    async def _try_start(self, pod: Object, directory: PodDirectory) -> tuple[Problem, ...]:
        namespace = pod["metadata"]["namespace"]
        sources = await self._sources(pod)
        hosts_file = self._network.hosts_file(namespace)
        facts = Facts(
            node_name=self._place.node_name,
            host_address=HOST_ADDRESS,
            address=self._network.add_pod(pod),
            directory=str(directory.path),
            hosts_file=str(hosts_file),
            level=self._place.sandbox.level,
            user_namespace=self._place.sandbox.user_namespace,
            python=self._place.python,
            home=self._place.home,
            allocatable=self._place.machine.allocatable,
            names=self._network.addresses_in(namespace) if self._place.sandbox.level == PLAIN else {},
        )
        resolved = resolve(pod, facts, sources)
        if not isinstance(resolved, Resolved):
            self._tell_problems(pod, resolved)
            return resolved
        if missing := self._missing_names(pod, resolved, facts):
            return missing
        self._network.write_hosts_files()  # the hosts file must be there before anybody mounts it
        if problems := await asyncio.to_thread(set_up_pod, directory, resolved):  # waits for the disk
            self._tell_problems(pod, problems)
            return problems
        self._supervise(pod["metadata"]["uid"], directory)
        self._tell_once(pod, resolved.notices)
        return ()

    def _missing_names(self, pod: Object, resolved: Resolved, facts: Facts) -> tuple[Problem, ...]:
        """At `plain` names become addresses before the start, so peers that come a moment later are waited for."""
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        self._waiting_for_names.discard(uid)
        if facts.level != PLAIN:
            return ()
        containers = [*resolved.pod["initContainers"], *resolved.pod["containers"]]
        missing = set().union(*(unresolved_names(one["env"], namespace, facts.names) for one in containers))
        if not missing:
            return ()
        names = ", ".join(sorted(missing))
        if time.monotonic() - self._first_seen[uid] < _SECONDS_FOR_NAMES:
            self._waiting_for_names.add(uid)
            return (
                Problem(reason=container_status.CONTAINER_CREATING, message=""),
            )  # usual among peers that start together
        text = f"started although nothing has the name {names}; at sandbox plain it will not be known later either"
        self._tell_once(pod, [Notice("UnresolvedName", text)])
        return ()

    async def _sources(self, pod: Object) -> ReferencedObjects:
        config_maps, secrets, claims = referenced_names(pod)
        namespace = pod["metadata"]["namespace"]
        found_maps, found_secrets, found_claims = await asyncio.gather(
            self._find(CONFIG_MAPS, config_maps, namespace),
            self._find(SECRETS, secrets, namespace),
            self._find(PERSISTENT_VOLUME_CLAIMS, claims, namespace),
        )
        bound = {claim["spec"].get("volumeName") for claim in found_claims.values()} - {None, ""}
        volumes = await self._find(PERSISTENT_VOLUMES, bound, None)
        return ReferencedObjects(config_maps=found_maps, secrets=found_secrets, claims=found_claims, volumes=volumes)

    async def _find(self, resource: Resource, names: set[str], namespace: str | None) -> dict[str, Object]:
        """Those that exist, by name."""
        ordered = sorted(names)
        answers = await asyncio.gather(
            *(self._client.get(resource, name, namespace=namespace) for name in ordered), return_exceptions=True
        )
        found = {}
        for name, answer in zip(ordered, answers, strict=True):
            if isinstance(answer, NotFound):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found

    def _tell_problems(self, pod: Object, problems: Iterable[Problem]) -> None:
        self._tell_once(pod, [Notice(problem.reason, problem.message) for problem in problems])

    def _tell_once(self, pod: Object, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if self._reported.first(pod["metadata"]["uid"], notice):
                self._recorder.record(pod, "Warning", notice.reason, notice.message)

    # Telling the API

    async def _mirror(self, pod: Object, state: dict[str, Any] | None, problems: tuple[Problem, ...]) -> Object:
        if state is None and _finished(pod):
            return pod
        before = pod.get("status") or {}
        address = before.get("podIP") or self._network.add_pod(pod)
        status = pod_status(
            pod, address=address, host_address=HOST_ADDRESS, state=state, problems=problems, now=self._clock()
        )
        metadata = pod["metadata"]
        uid, name, namespace = metadata["uid"], metadata["name"], metadata["namespace"]
        level = self._place.sandbox.level
        noted = (metadata.get("annotations") or {}).get(SANDBOX) == level
        if noted and same_status(before, status):
            return pod
        # The status endpoint takes annotations along: one write tells both.
        change = {"metadata": {"uid": uid, "annotations": {SANDBOX: level}}, "status": status}
        try:
            pod = await self._client.patch(PODS, name, change, namespace=namespace, subresource="status")
        except (NotFound, Conflict):
            return pod  # deleted, or replaced by another pod of the same name: the watch will say so
        self.store.remember(pod)
        for kind, reason, message in transitions(before, status):
            self._recorder.record(pod, kind, reason, message)
        if _finished(pod):
            self._network.remove_pod(uid)
        return pod

    async def _confirm_deletion(self, pod: Object) -> None:
        metadata = pod["metadata"]
        with contextlib.suppress(NotFound, Conflict):  # somebody was faster, or another pod has the name already
            await self._client.delete(
                PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_period_seconds=0
            )

    async def _clear(self, uid: str, directory: PodDirectory, supervision: Supervision | None) -> None:
        """The API has no such pod any more."""
        if supervision is not None:
            if supervision.stop_seconds != 0:
                directory.stop(supervision, 0)
            return
        self._network.remove_pod(uid)
        self._first_seen.pop(uid, None)
        self._waiting_for_names.discard(uid)
        self._reported.forget(uid)
        if directory.path.exists():
            await asyncio.to_thread(directory.remove)


def _finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _has_run(pod: Object) -> bool:
    status = pod.get("status") or {}
    known = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return any(one.get("containerID") for one in known)
