"""A job on a real API server, and the applier that writes plans for it."""

from dataclasses import dataclass, field
from datetime import datetime

from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine import Create, JobEvent, Observed, Plan
from trainwright.engine.plan import PODS_WAVE
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.requests import Request, Response
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.store import raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    EVENTS,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.reconcile_context import ReconcileContext

_JOB_FIELD = "spec.pytorchReplicaSpecs[Worker].template"


class CountingClient(Client):
    """A client that counts its requests in flight."""

    in_flight = 0
    most_in_flight = 0

    async def send(self, request: Request) -> Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await super().send(request)
        finally:
            self.in_flight -= 1


@dataclass
class ApplierHarness:
    """A job on the API server and an applier for it."""

    client: CountingClient
    job: Object
    caches: Caches = field(default_factory=lambda: Caches(KINDS))

    def __post_init__(self) -> None:
        self.recorder = EventRecorder(self.client, "pytorchjob-controller")
        self.applier = self.applier_of(48)

    def applier_of(self, parallel_writes: int, observer: Observer | None = None) -> Applier:
        context = ReconcileContext(self.client, self.caches, EventBuffer(self.record), observer or Observer())
        return Applier(context, parallel_writes=parallel_writes)

    def record(self, job: Object, event: JobEvent, at: datetime) -> None:
        self.recorder.record(job, event.type, event.reason, event.message, at=at)

    async def apply(self, **plan: object) -> tuple[str, ...]:
        """Returns the reasons of the writes that failed."""
        plan["creates"] = tuple(map(creation, plan.get("creates", ())))  # type: ignore[call-overload]
        failures = await self.applier.apply(PYTORCH, self.job, Plan(**plan))  # type: ignore[arg-type]  # checked by Plan
        return tuple(failure.reason for failure in failures)

    @property
    def observed(self) -> Observed:
        return self.caches.observe(raw_metadata(self.job))

    @property
    def namespace(self) -> str:
        return str(self.job["metadata"]["namespace"])

    async def events(self) -> list[tuple[str, str, str]]:
        await self.recorder.close()
        found = (await self.client.list(EVENTS, namespace=self.namespace)).items
        return sorted((event["type"], event["reason"], event["message"]) for event in found)

    async def pods(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in (await self.client.list(PODS, namespace=self.namespace)).items]

    def pod(self, name: str, **metadata: object) -> Object:
        ours = {
            "namespace": self.namespace,
            "labels": {"training.kubeflow.org/job-name": "job", "training.kubeflow.org/replica-type": "worker"},
            "ownerReferences": [controller_reference(self.job)],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **ours, **metadata},
            "spec": {"containers": [{"name": "pytorch", "image": "example.com/train:1"}]},
        }

    def service(self, name: str) -> Object:
        metadata = self.pod(name)["metadata"]
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None"}}


def creation(child: Object) -> Create:
    """The create of this child in a plan."""
    resources = (PODS, SERVICES, AUTOSCALERS, CONFIG_MAPS, SERVICE_ACCOUNTS)
    resource = next(one for one in resources if one.kind == child["kind"])
    with_event = resource in {PODS, SERVICES}
    return Create(resource, child["metadata"]["name"], _JOB_FIELD, lambda: child, PODS_WAVE, with_event=with_event)
