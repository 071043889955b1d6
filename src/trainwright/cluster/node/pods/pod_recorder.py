"""The events about pods that the agent records. A warning is recorded once for each pod."""

from collections.abc import Iterable

from trainwright.cluster.node.pods.config.pod_context import PodWarning
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_correlator import object_reference
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.objects import Object


class PodRecorder:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported = Deduplicator[str, PodWarning]()

    def warn(self, pod: Object, *warnings: PodWarning) -> None:
        for warning in warnings:
            if self._reported.first(pod["metadata"]["uid"], warning):
                self._recorder.record(pod, "Warning", warning.reason, warning.message)

    def warn_of_waiting(self, pod: Object, waiting: Iterable[WaitingReason]) -> None:
        self.warn(pod, *(PodWarning(reason.reason, reason.message) for reason in waiting))

    def record(self, pod: Object, reason: str, message: str) -> None:
        self._recorder.record(pod, "Normal", reason, message)

    def record_about(self, pod: Object, path: str, reason: str, message: str, *, type_: str = "Normal") -> None:
        """An event about a container."""
        self._recorder.record({**object_reference(pod), "fieldPath": path}, type_, reason, message)

    def forget(self, uid: str) -> None:
        self._reported.forget(uid)
