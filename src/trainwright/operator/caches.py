"""What the operator knows of the cluster without asking: jobs whole, their children as trimmed views.

Watches keep it up to date, and every answer to a write of our own goes in at once, so that no decision rests on a
picture that is older than what we did ourselves.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from trainwright.api.kinds import Kind
from trainwright.engine import Observed, ServiceView
from trainwright.engine.labels import JOB_NAME
from trainwright.kube.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.pods import Pod
from trainwright.objects.resources import NODES, PODS, SERVICES, Resource

_JOB = "job"
"""The index of children by job: by the uid of the one that controls them and by the name of the one they carry."""


class NodeView(View, frozen=True):
    """A Node as far as ports go."""

    metadata: ObjectMeta


V = TypeVar("V", Pod, ServiceView, NodeView)
C = TypeVar("C", Pod, ServiceView)


class Jobs:
    """All jobs of one kind, as they are in the API but for the record of who set which field: it is as long as the
    job itself, nobody here reads it, and the server keeps it when a status is written without it."""

    def __init__(self, kind: Kind) -> None:
        self.resource = kind.resource
        self.store: Store[Object] = Store(metadata=raw_metadata)

    def read(self, job: Object) -> Object:
        metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
        return {**job, "metadata": metadata}

    def remember(self, answer: Object) -> None:
        """Takes in the answer to a write."""
        self.store.remember(self.read(answer))


@dataclass(frozen=True)
class Views(Generic[V]):
    """All objects of one resource that concern us, trimmed to what we decide by."""

    resource: Resource
    view: type[V]
    store: Store[V]

    def read(self, answer: Object) -> V:
        return msgspec.convert(answer, self.view)

    def remember(self, answer: Object) -> None:
        """Takes in the answer to a write."""
        self.store.remember(self.read(answer))

    def remember_deletion(self, answer: Object, *, key: str, uid: str) -> None:
        """Takes in the answer to a DELETE: the object on its way out, or for one that left at once anything else."""
        if is_going(answer):
            self.remember(answer)
        else:
            self.store.forget(key, uid=uid)


class Caches:
    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.jobs = {name: Jobs(kind) for name, kind in kinds.items()}
        self.pods = _children(PODS, Pod)
        self.services = _children(SERVICES, ServiceView)
        self.nodes: Views[NodeView] = Views(NODES, NodeView, Store(metadata=lambda node: node.metadata))

    def children(self, kind: str) -> Views[Pod] | Views[ServiceView]:
        return self.pods if kind == PODS.kind else self.services

    def all_jobs(self) -> Iterable[Object]:
        for jobs in self.jobs.values():
            yield from jobs.store.all()

    def observe(self, job: ObjectMeta, *, taken_ports: frozenset[int]) -> Observed:
        """What the engine may know: the job's children, and objects of others that carry its name."""
        return Observed(
            pods=tuple(_concerning(job, self.pods.store)),
            services=tuple(_concerning(job, self.services.store)),
            taken_ports=taken_ports,
        )


def is_going(answer: Object) -> bool:
    """Whether the answer to a DELETE shows an object that is still there: its grace period runs, or a finalizer holds
    it. Without either it is gone, whether the server answers with its last state or with a Status."""
    metadata = answer.get("metadata") or {}
    return "deletionTimestamp" in metadata and bool(
        metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    )


def _children(resource: Resource, view: type[C]) -> Views[C]:
    store: Store[C] = Store(metadata=lambda child: child.metadata, indexes={_JOB: _jobs_of})
    return Views(resource, view, store)


def _jobs_of(child: Pod | ServiceView) -> Iterable[str]:
    metadata = child.metadata
    owner = metadata.controller
    by_name = f"{metadata.namespace}/{metadata.labels.get(JOB_NAME, '')}"
    return (owner.uid, by_name) if owner else (by_name,)


def _concerning(job: ObjectMeta, store: Store[C]) -> Iterable[C]:
    found = store.by_index(_JOB, job.uid) + store.by_index(_JOB, f"{job.namespace}/{job.name}")
    return {child.metadata.uid: child for child in found}.values()
