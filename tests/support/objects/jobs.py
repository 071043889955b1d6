"""Fluent builders for jobs and their children with defaults: a test sets only the fields that it is about."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec

from trainwright.api.job import Job, read_job
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.engine.observed_state import ServiceView
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod, read_pod
from trainwright.objects.times import format_time

NOW = datetime(2026, 11, 15, 4, 0, 0, tzinfo=UTC)
NAMESPACE = "team"
JOB_UID = "job-uid"


def at(seconds: float) -> datetime:
    """The time so many seconds after `NOW`."""
    return NOW + timedelta(seconds=seconds)


def template(**container: Any) -> Object:
    """A pod template with one training container; keyword arguments become fields of the container."""
    return {"spec": {"containers": [{"name": "pytorch", "image": "example/train:1", **container}]}}


class JobBuilder:
    """`JobBuilder().master().workers(2).run_policy(backoffLimit=3).raw()`; `.job()` reads it as the engine does."""

    def __init__(self, name: str = "digits", *, kind: Kind = PYTORCH, namespace: str = NAMESPACE) -> None:
        self.kind = kind
        self.object: Object = {
            "apiVersion": "kubeflow.org/v1",
            "kind": kind.name,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": JOB_UID,
                "resourceVersion": "1",
                "generation": 1,
                "creationTimestamp": format_time(NOW),
            },
            "spec": {kind.replicas_field: {}},
        }

    def replica(
        self, role: str, count: int | None = 1, *, policy: str | None = None, pod: Object | None = None
    ) -> Self:
        spec: Object = {"template": pod or template(name=_container(self.kind, role))}
        if count is not None:
            spec["replicas"] = count
        if policy is not None:
            spec["restartPolicy"] = policy
        self.object["spec"][self.kind.replicas_field][role] = spec
        return self

    def master(self, *, policy: str | None = None, pod: Object | None = None) -> Self:
        return self.replica("Master", 1, policy=policy, pod=pod)

    def workers(self, count: int = 2, *, policy: str | None = None, pod: Object | None = None) -> Self:
        return self.replica("Worker", count, policy=policy, pod=pod)

    def run_policy(self, **fields: Any) -> Self:
        self.object["spec"].setdefault("runPolicy", {}).update(fields)
        return self

    def suspend(self, suspended: bool = True) -> Self:
        return self.run_policy(suspend=suspended)

    def spec(self, **fields: Any) -> Self:
        self.object["spec"].update(fields)
        return self

    def metadata(self, **fields: Any) -> Self:
        self.object["metadata"].update(fields)
        return self

    def annotation(self, key: str, value: str) -> Self:
        self.object["metadata"].setdefault("annotations", {})[key] = value
        return self

    def status(self, status: Object | None) -> Self:
        if status is not None:
            self.object["status"] = copy.deepcopy(status)
        return self

    def raw(self) -> Object:
        return copy.deepcopy(self.object)

    def manifest(self) -> Object:
        """The job as a user writes it, without the metadata that the API server sets."""
        raw = self.raw()
        written = ("name", "namespace", "labels", "annotations")
        return {**raw, "metadata": {key: value for key, value in raw["metadata"].items() if key in written}}

    def job(self) -> Job:
        return read_job(self.raw(), {self.kind.name: self.kind})


def pair(name: str, kind: Kind, *, policy: str | None = None, pod: Object | None = None) -> JobBuilder:
    """A job of two pods. The first one belongs to the kind's deciding role."""
    builder, first = JobBuilder(name, kind=kind), kind.roles[0].name
    if first == "Worker":
        return builder.workers(2, policy=policy, pod=pod)
    return builder.replica(first, policy=policy, pod=pod).workers(1, policy=policy, pod=pod)


def pair_pods(name: str, kind: Kind) -> tuple[str, str]:
    """The names of both pods. The second one is a worker."""
    first = kind.roles[0]
    return first.child_name(name, 0), f"{name}-worker-{int(first.name == 'Worker')}"


class PodBuilder:
    """A pod of the job `digits`; `PodBuilder("Worker", 1).failed(137).pod()`."""

    def __init__(
        self, role: str = "Worker", index: int = 0, *, job: str = "digits", kind: Kind = PYTORCH, uid: str | None = None
    ) -> None:
        name = _child_name(kind, job, role, index)
        self._container = _container(kind, role)
        self.object: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**_child_metadata(name, job, role, index, kind), "uid": uid or f"{name}-uid"},
            "spec": {},
            "status": {"phase": "Pending"},
        }

    def running(self, *, restarts: int = 0) -> Self:
        return self._phase("Running", {"running": {"startedAt": format_time(NOW)}}, restarts)

    def succeeded(self, exit_code: int | None = 0, *, finished: datetime = NOW) -> Self:
        """`exit_code` None: the status has no container statuses."""
        return self._finished("Succeeded", exit_code, 0, finished)

    def failed(self, exit_code: int | None = 1, *, restarts: int = 0, finished: datetime = NOW) -> Self:
        """`exit_code` None: the status has no container statuses, as with evicted pods."""
        return self._finished("Failed", exit_code, restarts, finished)

    def waiting(self, reason: str, message: str = "") -> Self:
        return self._phase("Pending", {"waiting": {"reason": reason, "message": message}}, 0)

    def reason(self, reason: str, message: str = "") -> Self:
        self.object["status"].update(reason=reason, message=message)
        return self

    def condition(self, kind: str, status: str = "True", **fields: str) -> Self:
        self.object["status"].setdefault("conditions", []).append({"type": kind, "status": status, **fields})
        return self

    def terminating(self, since: datetime = NOW, *, grace: int = 30) -> Self:
        """Its deletion was requested at `since`; `deletionTimestamp` is the end of the grace period."""
        self.object["metadata"]["deletionTimestamp"] = format_time(since + timedelta(seconds=grace))
        self.object["metadata"]["deletionGracePeriodSeconds"] = grace
        return self

    def spec(self, **fields: Any) -> Self:
        self.object["spec"].update(fields)
        return self

    def owner(self, uid: str | None) -> Self:
        """Another owner than the job; None: an orphan."""
        return self.metadata(ownerReferences=[] if uid is None else [_owner("digits", PYTORCH, uid)])

    def annotation(self, key: str, value: str) -> Self:
        self.object["metadata"].setdefault("annotations", {})[key] = value
        return self

    def label(self, key: str, value: str) -> Self:
        self.object["metadata"]["labels"][key] = value
        return self

    def metadata(self, **fields: Any) -> Self:
        self.object["metadata"].update(fields)
        return self

    def raw(self) -> Object:
        return copy.deepcopy(self.object)

    def pod(self) -> Pod:
        return read_pod(self.raw())

    def _finished(self, phase: str, exit_code: int | None, restarts: int, finished: datetime) -> Self:
        if exit_code is None:
            self.object["status"] = {"phase": phase}
            return self
        return self._phase(phase, _ended(exit_code, finished), restarts)

    def _phase(self, phase: str, state: Object, restarts: int) -> Self:
        status = {"name": self._container, "restartCount": restarts, "state": state, "ready": phase == "Running"}
        self.object["status"] = {"phase": phase, "containerStatuses": [status]}
        return self


def service(role: str, index: int, *, job: str = "digits", kind: Kind = PYTORCH, uid: str | None = None) -> Object:
    """The Service of one rank."""
    name = _child_name(kind, job, role, index)
    metadata = {**_child_metadata(name, job, role, index, kind), "uid": uid or f"{name}-service-uid"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata}


def view_service(obj: Object) -> ServiceView:
    return msgspec.convert(obj, ServiceView)


def services(*ranks: tuple[str, int]) -> tuple[ServiceView, ...]:
    return tuple(view_service(service(role, index)) for role, index in ranks)


def stored(obj: Object, uid: str) -> Object:
    """A child of a plan as the API server returns it."""
    return {**obj, "metadata": {**obj["metadata"], "uid": uid, "resourceVersion": "1"}}


def _container(kind: Kind, role: str) -> str:
    known = kind.role(role)
    return (kind.container_of(known) if known else kind.container) or "main"


def _child_name(kind: Kind, job: str, role: str, index: int) -> str:
    known = kind.role(role)
    return known.child_name(job, index) if known else f"{job}-{role.lower()}-{index}"


def _child_metadata(name: str, job: str, role: str, index: int, kind: Kind) -> Object:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "resourceVersion": "1",
        "creationTimestamp": format_time(NOW),
        "labels": {
            "training.kubeflow.org/operator-name": kind.controller,
            "training.kubeflow.org/job-name": job,
            "training.kubeflow.org/replica-type": role.lower(),
            **_index_label(kind, role, index),
        },
        "ownerReferences": [_owner(job, kind, JOB_UID)],
    }


def _index_label(kind: Kind, role: str, index: int) -> dict[str, str]:
    known = kind.role(role)
    return {} if known and not known.indexed else {"training.kubeflow.org/replica-index": str(index)}


def _owner(job: str, kind: Kind, uid: str) -> Object:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind.name,
        "name": job,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _ended(exit_code: int, finished: datetime) -> Object:
    return {"terminated": {"exitCode": exit_code, "finishedAt": format_time(finished)}}
