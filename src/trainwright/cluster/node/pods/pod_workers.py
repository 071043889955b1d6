"""The pod workers of the node: `sync` brings one pod to the state that its Pod object specifies.

A pod is synced when its object changes, when its supervisor writes a new state, and when its supervisor ends.
`pod_starter` starts it and `status_manager` writes its status; what they carry out is decided by pure functions in
`runtime_config`, `container_status` and `pod_status`.
"""

import asyncio
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime

from trainwright.cluster.node.devices.allocation import GpuAllocations
from trainwright.cluster.node.machine import how_to_free
from trainwright.cluster.node.network.hosts import hostname
from trainwright.cluster.node.network.pod_network import PodNetwork
from trainwright.cluster.node.pods.config.pod_context import PodWarning, node_fields, node_user
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason, deadline_at, with_changes
from trainwright.cluster.node.pods.config.security_context import file_owner
from trainwright.cluster.node.pods.fork_server_starter import ForkServer
from trainwright.cluster.node.pods.images.pod_images import PodImages
from trainwright.cluster.node.pods.local_storage import EVICTED, GRACE_SECONDS, exceeded_limit, limited_volumes
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.cluster.node.pods.pod_directory import PodDirectory, SupervisorProcess, pod_directories
from trainwright.cluster.node.pods.pod_recorder import PodRecorder
from trainwright.cluster.node.pods.pod_starter import Namespaces, PodStarter, started_at
from trainwright.cluster.node.pods.pod_status import empty_state, field_path, is_finished
from trainwright.cluster.node.pods.running_supervisors import Supervisors
from trainwright.cluster.node.pods.status_manager import StatusManager
from trainwright.cluster.node.pods.volume_manager import VolumeManager, object_keys
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.processes import kill_orphans
from trainwright.cluster.node.supervisor.sandbox import cgroups
from trainwright.cluster.node.supervisor.sandbox.sandbox import PLAIN
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter
from trainwright.kube.controller.store import Store
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object

_FIRST_STATE_SECONDS = 0.3
"""A supervisor writes its first state when a container runs; a pod that takes longer is shown as ContainerCreating."""
_RETRY_SECONDS = 1.0


class PodWorkers:
    def __init__(
        self,
        client: Client,
        node: NodeConfig,
        network: PodNetwork,
        recorder: EventRecorder,
        *,
        on_retired: Callable[[PodDirectory], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`on_retired` is called with the directory of a deleted pod that had an owner."""
        self._on_retired = on_retired
        self._node = node
        self._network = network
        self._clock = clock
        self.queue = WorkQueue[str](longest_delay=10.0)
        self._supervisors = Supervisors(
            ForkServer(node.supervisor_python, node.directory, node.session_secret, node.address_mark),
            on_exit=self._on_supervisor_exit,
        )
        self._gpus = GpuAllocations(node.machine.gpus)
        self._disk_pressure = False
        self._recorder = PodRecorder(recorder)
        self._generations: dict[str, int] = {}
        """The generation of the spec that the supervisor knows, by uid of the pod."""
        self.store: Store[Object] = Store(
            indexes={"uid": lambda pod: [str(pod["metadata"]["uid"])], "objects": object_keys}
        )
        self._images = PodImages(client, node, self._recorder, enqueue=self.queue.add)
        self.volumes = VolumeManager(client, on_change=self._on_object_change, clock=clock)
        self.namespaces = Namespaces(client)
        self._starter = PodStarter(
            node=node,
            supervisors=self._supervisors,
            recorder=self._recorder,
            network=network,
            volumes=self.volumes,
            namespaces=self.namespaces,
            images=self._images,
            gpus=self._gpus,
            clock=clock,
        )
        self._statuses = StatusManager(
            client=client,
            store=self.store,
            recorder=self._recorder,
            network=network,
            images=self._images,
            gpus=self._gpus,
            sandbox=node.sandbox.level,
            clock=clock,
        )

    def restore(self) -> None:
        """Enqueues the pods of an earlier agent and reserves their addresses, before the first list. An address of
        another range, which the cluster had before, stays with its pod while that runs.

        Workers start after the list, so a pod that is not in the store then has been deleted.
        """
        self._supervisors.prepare()
        for uid, directory in pod_directories(self._node.directory).items():
            self.queue.add(uid)
            if (config := directory.runtime_config) is not None:
                if self._network.owns(config["address"]) or self._supervisors.find(uid, directory):
                    self._network.reserve(uid, config["address"])
                if not directory.is_finished:
                    self._gpus.restore(uid, [*config["initContainers"], *config["containers"]])

    async def close(self) -> None:
        """Stops watching the supervisors. The pods keep running."""
        self._supervisors.close()
        await self._images.close()

    def on_pod_change(self, before: Object | None, after: Object | None) -> None:
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._network.remove_pod(before["metadata"]["uid"])
            self.queue.add(before["metadata"]["uid"])
        if after is not None:
            uid = after["metadata"]["uid"]
            self._starter.see(uid)
            if is_finished(after):
                self._network.finish_pod(uid)
            else:
                self._network.add_pod(after)
            self.queue.add(uid)

    def _on_object_change(self, key: str) -> None:
        """A ConfigMap or Secret has changed."""
        for pod in self.store.by_index("objects", key):
            self.queue.add(pod["metadata"]["uid"])

    def on_names_changed(self) -> None:
        for uid in self._starter.waiting_for_names:
            self.queue.add(uid)

    def on_state_change(self, uid: str) -> None:
        """The supervisor has written a new state. Unknown uids are ignored, because they would name a directory."""
        if self.store.by_index("uid", uid):
            self.queue.add(uid)

    def on_disk_full(self, uid: str) -> None:
        """The supervisor of the pod cannot write."""
        text = "the disk is full: output of the pod is not logged until there is space, and its files may be incomplete"
        for pod in self.store.by_index("uid", uid):
            self._recorder.warn(pod, PodWarning("DiskFull", f"{text}; {how_to_free(self._node.directory)}"))

    def set_disk_pressure(self, pressure: bool) -> None:
        """While the disk is almost full, every pod that is not finished gets a warning."""
        self._disk_pressure = pressure
        for pod in self.store.all():
            self._warn_about_disk(pod)

    async def evict_large_pods(self) -> None:
        """Ends the pods whose emptyDir volumes are larger than their limits, as the kubelet does."""
        for pod in self.store.all():
            volumes = list(limited_volumes(pod, has_tmpfs=self._node.sandbox.level != PLAIN))
            uid = pod["metadata"]["uid"]
            if not volumes or uid not in self._supervisors:
                continue
            directory = self._directory_of(uid)
            message = await asyncio.to_thread(exceeded_limit, volumes, directory.path / "volumes")
            supervisor = self._supervisors.find(uid, directory)
            if message and supervisor is not None and supervisor.grace_period is None:
                self._recorder.warn(pod, PodWarning(EVICTED, message))
                directory.stop(supervisor, GRACE_SECONDS, reason=EVICTED, message=message)

    def _warn_about_disk(self, pod: Object) -> None:
        if self._disk_pressure and not is_finished(pod):
            text = f"the disk is almost full; {how_to_free(self._node.directory)}"
            self._recorder.warn(pod, PodWarning("DiskPressure", text))

    def on_error(self, uid: str, error: Exception) -> None:
        for pod in self.store.by_index("uid", uid):
            self._recorder.warn(pod, PodWarning("NodeError", f"{type(error).__name__}: {error}"))

    async def sync(self, uid: str) -> Outcome:
        """Starts, updates or stops the pod, then writes its status; removes what is left of a deleted one."""
        directory = self._directory_of(uid)
        supervisor = self._supervisors.find(uid, directory)
        pods = self.store.by_index("uid", uid)
        if not pods:
            await self._clean_up(uid, directory, supervisor)
            return Done()
        pod = pods[0]
        deleting = pod["metadata"].get("deletionTimestamp") is not None
        outcome: Outcome = Done()
        waiting: tuple[WaitingReason, ...] = ()
        if supervisor is not None and deleting:
            self._stop_pod(pod, directory, supervisor)
        elif supervisor is not None:
            self._update_pod(pod, directory, supervisor)
            outcome = await self._refresh_volumes(pod, directory)
        elif is_finished(pod) or directory.is_finished:
            pass
        elif self._is_past_deadline(pod):
            self._exceed_deadline(pod, directory)
        elif directory.had_supervisor or _has_run(pod):
            waiting = await self._recover(pod, directory, deleting=deleting)
        elif not deleting:
            waiting = await self._start_pod(pod, directory)
            if not waiting:
                return RequeueAfter(_FIRST_STATE_SECONDS)
        if waiting:
            outcome = RequeueAfter(_RETRY_SECONDS)
        await self._write_status(pod, directory, waiting, deleting=deleting)
        return outcome

    async def _start_pod(self, pod: Object, directory: PodDirectory) -> tuple[WaitingReason, ...]:
        """Returns why containers wait; nothing if the pod was started."""
        waiting = await self._starter.start(pod, directory)
        if not waiting:
            self._generations[pod["metadata"]["uid"]] = pod["metadata"].get("generation", 0)
            self._warn_about_disk(pod)
        return waiting

    async def _write_status(
        self, pod: Object, directory: PodDirectory, waiting: tuple[WaitingReason, ...], *, deleting: bool
    ) -> None:
        """Writes events and status, and deletes the object of a deleted pod that has ended."""
        await self._recorder.relay(pod, directory)
        state = directory.state
        if state is not None or not deleting:
            pod = await self._statuses.update(pod, directory, state, waiting)
        if deleting and pod["metadata"]["uid"] not in self._supervisors:
            await self._recorder.relay(pod, directory)  # the supervisor may have ended while the status was written
            await self._statuses.delete_object(pod)

    def _directory_of(self, uid: str) -> PodDirectory:
        return PodDirectory(self._node.directory / "pods" / uid)

    # Supervisors

    def _on_supervisor_exit(self, uid: str, supervisor: SupervisorProcess) -> None:
        directory = self._directory_of(uid)
        cgroups.remove_pod(directory.runtime_config)  # of a supervisor that was killed; others have removed them
        if not directory.had_supervisor:
            error = directory.supervisor_error
            warning = PodWarning("FailedCreatePodSandBox", f"the supervisor ended: {error}")
            if error.startswith("MountVolume."):
                warning = PodWarning("FailedMount", error)
            for pod in self.store.by_index("uid", uid):
                self._recorder.warn(pod, warning)
        # A supervisor that failed immediately would fail again: wait before starting the next one.
        delay = 0.0 if directory.is_finished else _RETRY_SECONDS - (time.monotonic() - supervisor.since)
        self.queue.add_after(uid, delay)

    async def _recover(self, pod: Object, directory: PodDirectory, *, deleting: bool) -> tuple[WaitingReason, ...]:
        """The supervisor ended with the cluster or unexpectedly: it was killed, or the machine was rebooted. Returns
        why a pod that has to be started again waits."""
        policy = container_status.NEVER if deleting else pod["spec"].get("restartPolicy") or container_status.ALWAYS
        was_set_up = directory.runtime_config is not None
        state = directory.state or empty_state(pod)
        for status in [*state["initContainers"], *state["containers"]] if was_set_up else []:
            if "running" in status["state"] and status.get("process"):
                kill_orphans(status["process"], variable=f"HOSTNAME={hostname(pod)}")
        now = container_status.timestamp(time.time_ns())
        state = container_status.without_supervisor(
            state, policy if was_set_up else container_status.NEVER, now, shutdown=directory.shutdown_requested
        )
        directory.write_state(state)
        directory.forget_shutdown()
        if state["finished"]:
            return ()
        if self._starter.has_other_addresses(pod, directory):
            return await self._starter.start(pod, directory)
        await self._supervisors.start(pod["metadata"]["uid"], directory)
        return ()

    def _stop_pod(self, pod: Object, directory: PodDirectory, supervisor: SupervisorProcess) -> None:
        grace = pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        if supervisor.grace_period is not None and supervisor.grace_period <= grace:
            return
        was_stopping = directory.stop_requested
        directory.stop(supervisor, float(grace))
        if not was_stopping:
            status = pod.get("status") or {}
            for field, statuses in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
                for container in status.get(statuses) or []:
                    if "running" in container["state"]:
                        text = f"Stopping container {container['name']}"
                        self._recorder.record_about(pod, field_path(field, container["name"]), "Killing", text)

    def _update_pod(self, pod: Object, directory: PodDirectory, supervisor: SupervisorProcess) -> None:
        """Passes on what may change in the spec of a running pod: images, and activeDeadlineSeconds."""
        uid, generation = pod["metadata"]["uid"], pod["metadata"].get("generation", 0)
        if self._generations.get(uid) == generation:
            return
        self._generations[uid] = generation
        config = directory.runtime_config
        if config is None or "deadlineAt" not in config:  # of an earlier version, which SIGHUP would end
            return
        changed = with_changes(config, pod, deadline=deadline_at(pod, started_at(pod, self._clock())))
        if changed != config:
            directory.write_runtime_config(changed)
            supervisor.signal(signal.SIGHUP)

    async def _refresh_volumes(self, pod: Object, directory: PodDirectory) -> Outcome:
        context = self._starter.context(pod, directory)
        owner = file_owner(pod, node_user(context))
        refresh = await self.volumes.refresh(pod, node_fields(context), directory.path / "volumes", owner)
        if refresh.failure:
            self._recorder.warn(pod, PodWarning("FailedMount", refresh.failure))
        return Done() if refresh.due_in is None else RequeueAfter(refresh.due_in)

    def _is_past_deadline(self, pod: Object) -> bool:
        """True if activeDeadlineSeconds are over."""
        now = self._clock()
        deadline = deadline_at(pod, started_at(pod, now))
        return deadline is not None and deadline <= now.timestamp()

    def _exceed_deadline(self, pod: Object, directory: PodDirectory) -> None:
        """The pod has no supervisor, for example because it waits for a volume."""
        reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
        now = container_status.timestamp(time.time_ns())
        state = container_status.without_supervisor(directory.state or empty_state(pod), container_status.NEVER, now)
        directory.write_state({**state, "reason": reason, "message": message})
        self._recorder.record(pod, reason, message)

    async def _clean_up(self, uid: str, directory: PodDirectory, supervisor: SupervisorProcess | None) -> None:
        """The Pod object no longer exists."""
        if supervisor is not None:
            if supervisor.grace_period != 0:
                directory.stop(supervisor, 0)
            return
        cgroups.remove_pod(directory.runtime_config)
        self._network.remove_pod(uid)
        self._gpus.release(uid)
        self._starter.forget(uid)
        self._recorder.forget(uid)
        self.volumes.forget(uid)
        self._images.forget(uid)
        self._generations.pop(uid, None)
        if directory.owner is not None:
            self._on_retired(await asyncio.to_thread(directory.retire))
        elif directory.path.exists():
            await asyncio.to_thread(directory.remove)


def _has_run(pod: Object) -> bool:
    status = pod.get("status") or {}
    statuses = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return any(container.get("containerID") for container in statuses)
