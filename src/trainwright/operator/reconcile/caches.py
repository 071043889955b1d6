"""The operator's caches: whole jobs, and their children as trimmed views.

Watches keep them up to date. The response to each of our own writes is stored at once, so that no plan is based on a
state from before that write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from trainwright.api.kinds import Kind
from trainwright.api.labels import JOB_NAME
from trainwright.api.pruned_status import restore_pruned_fields
from trainwright.engine import ExtraView, Observed, ServiceView, read_extra
from trainwright.engine.framework import ExtraResource
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta, OwnerReference, View
from trainwright.objects.resources import NODES, PODS, PRIORITY_CLASSES, SERVICES, Resource

_JOB = "job"
"""The index of children by job: by the uid of their controller, and by the job's name in their label."""


class PriorityClass(View, frozen=True):
    metadata: ObjectMeta
    value: int = 0


V = TypeVar("V", Pod, ServiceView, ExtraView, Node, PriorityClass)
C = TypeVar("C", Pod, ServiceView, ExtraView)


class Jobs:
    """All jobs of one kind, without managedFields: they are as long as the job itself, the operator does not need them,
    and the API server keeps them when a status is written without them. Status fields that the CRD prunes are restored
    from the annotation."""

    def __init__(self, kind: Kind) -> None:
        self.resource = kind.resource
        self.store: Store[Object] = Store()

    def read(self, job: Object) -> Object:
        metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
        return restore_pruned_fields({**job, "metadata": metadata})

    def remember(self, response: Object) -> None:
        """Stores the response to a write."""
        self.store.remember(self.read(response))


@dataclass(frozen=True)
class Views(Generic[V]):
    """All objects of one resource that the operator watches, trimmed to what plans depend on."""

    resource: Resource
    convert: Callable[[Object], V] | type[V]
    store: Store[V]
    extra: ExtraResource | None = None
    """For extra objects: what the operator is allowed to do with them. None for pods and Services."""

    def read(self, obj: Object) -> V:
        return msgspec.convert(obj, self.convert) if isinstance(self.convert, type) else self.convert(obj)

    def remember(self, response: Object) -> None:
        """Stores the response to a write."""
        self.store.remember(self.read(response))

    def remember_deletion(self, response: Object, *, key: str, uid: str) -> None:
        """Stores the response to a DELETE if the object is terminating; anything else means that it is gone."""
        if is_terminating(response):
            self.remember(response)
        else:
            self.store.forget(key, uid=uid)


class Caches:
    """`extras` are the resources of extra objects that the cluster serves. Nodes and priority classes are None where
    the operator does not watch them."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        extras: Sequence[ExtraResource] = (),
        cluster_resources: Sequence[Resource] = (),
    ) -> None:
        self.jobs = {name: Jobs(kind) for name, kind in kinds.items()}
        self.pods = _children(PODS, Pod)
        self.services = _children(SERVICES, ServiceView)
        self.extras = {extra.resource.kind: _children(extra.resource, read_extra, extra) for extra in extras}
        self.nodes = _views(NODES, Node) if NODES in cluster_resources else None
        self.priorities = _views(PRIORITY_CLASSES, PriorityClass) if PRIORITY_CLASSES in cluster_resources else None
        self._children: dict[str, Views[Any]] = {
            PODS.kind: self.pods,
            SERVICES.kind: self.services,
            **self.extras,
        }
        self._claimed: dict[str, dict[tuple[str, str], ExtraView]] = {}

    def children(self, kind: str) -> Views[Any]:
        return self._children[kind]

    def all_jobs(self) -> Iterable[Object]:
        for jobs in self.jobs.values():
            yield from jobs.store.all()

    def find_job(self, owner: OwnerReference, namespace: str) -> Object | None:
        """The job that the reference names, if it is of one of our kinds and still exists."""
        jobs = self.jobs.get(owner.kind)
        job = jobs.store.get(f"{namespace}/{owner.name}") if jobs else None
        return job if job is not None and job["metadata"]["uid"] == owner.uid else None

    def claim(self, job_uid: str, extra: ExtraView) -> None:
        """Remembers an object of the job that the watch does not select: it lacks the label, and the operator is not
        allowed to update it. If the object is deleted, only a restarted operator creates it again."""
        self._claimed.setdefault(job_uid, {})[extra.kind, extra.metadata.name] = extra

    def forget_claims(self, job_uid: str) -> None:
        self._claimed.pop(job_uid, None)

    def pods_of(self, job_uid: str) -> Iterable[Pod]:
        """The pods that the job controls."""
        return self.pods.store.by_index(_JOB, job_uid)

    def observe(self, job: ObjectMeta) -> Observed:
        """The engine's input: the job's children, other objects with its name in their label, nodes and priorities."""
        classes = self.priorities.store.all() if self.priorities else ()
        name = f"{job.namespace}/{job.name}"
        extras = [extra for views in self.extras.values() for extra in views.store.by_index(_JOB, job.uid, name)]
        return Observed(
            pods=tuple(self.pods.store.by_index(_JOB, job.uid, name)),
            services=tuple(self.services.store.by_index(_JOB, job.uid, name)),
            extras=(*extras, *self._claimed.get(job.uid, {}).values()),
            nodes=None if self.nodes is None else NodesByName(self.nodes.store),
            priorities={priority.metadata.name: priority.value for priority in classes},
        )


class NodesByName(Mapping[str, Node]):
    """The Nodes of a store, without a copy: there may be thousands, and a plan needs a few."""

    def __init__(self, store: Store[Node]) -> None:
        self._store = store

    def __getitem__(self, name: str) -> Node:
        node = self._store.get(name)
        if node is None:
            raise KeyError(name)
        return node

    def __iter__(self) -> Iterator[str]:
        return (node.metadata.name for node in self._store.all())

    def __len__(self) -> int:
        return len(self._store)


def is_terminating(response: Object) -> bool:
    """True if the response to a DELETE shows an object that still exists: its grace period runs, or it has a finalizer.
    Otherwise it is gone, whether the API server returns its last state or a Status."""
    metadata = response.get("metadata") or {}
    return "deletionTimestamp" in metadata and bool(
        metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    )


def _views(resource: Resource, view: type[V]) -> Views[V]:
    return Views(resource, view, Store())


def _children(
    resource: Resource, convert: Callable[[Object], C] | type[C], extra: ExtraResource | None = None
) -> Views[C]:
    store = Store[C](indexes={_JOB: _job_keys}, matches=lambda child: JOB_NAME in child.metadata.labels)
    return Views(resource, convert, store, extra)


def _job_keys(child: Pod | ServiceView | ExtraView) -> Iterable[str]:
    metadata = child.metadata
    owner = metadata.controller
    by_name = f"{metadata.namespace}/{metadata.labels.get(JOB_NAME, '')}"
    return (owner.uid, by_name) if owner else (by_name,)
