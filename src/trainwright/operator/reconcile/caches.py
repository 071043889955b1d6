"""What the operator knows of the cluster without asking: jobs whole, their children as trimmed views.

Watches keep it up to date, and every answer to a write of our own goes in at once, so that no decision rests on a
picture that is older than what we did ourselves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from trainwright.api.kinds import Kind
from trainwright.api.labels import JOB_NAME
from trainwright.api.pruned_status import recalled
from trainwright.engine import ExtraView, Observed, ServiceView, read_extra
from trainwright.engine.framework import ExtraResource
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.nodes import Node
from trainwright.objects.pods import Pod
from trainwright.objects.resources import NODES, PODS, PRIORITY_CLASSES, SERVICES, Resource

_JOB = "job"
"""The index of children by job: by the uid of the one that controls them and by the name of the one they carry."""


class PriorityClass(View, frozen=True):
    metadata: ObjectMeta
    value: int = 0


V = TypeVar("V", Pod, ServiceView, ExtraView, Node, PriorityClass)
C = TypeVar("C", Pod, ServiceView, ExtraView)


class Jobs:
    """All jobs of one kind, as they are in the API but for the record of who set which field: it is as long as the
    job itself, nobody here reads it, and the server keeps it when a status is written without it. What a job carries
    as a memory, because its CRD drops our fields, stands in its status again."""

    def __init__(self, kind: Kind) -> None:
        self.resource = kind.resource
        self.store: Store[Object] = Store(metadata=raw_metadata)

    def read(self, job: Object) -> Object:
        metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
        return recalled({**job, "metadata": metadata})

    def remember(self, answer: Object) -> None:
        """Takes in the answer to a write."""
        self.store.remember(self.read(answer))


@dataclass(frozen=True)
class Views(Generic[V]):
    """All objects of one resource that concern the operator, trimmed to what decisions depend on."""

    resource: Resource
    convert: Callable[[Object], V] | type[V]
    store: Store[V]
    extra: ExtraResource | None = None
    """Set for resources of extra objects: what the operator may do with them."""

    def read(self, answer: Object) -> V:
        return msgspec.convert(answer, self.convert) if isinstance(self.convert, type) else self.convert(answer)

    def remember(self, answer: Object) -> None:
        """Takes in the response to a write."""
        self.store.remember(self.read(answer))

    def remember_deletion(self, answer: Object, *, key: str, uid: str) -> None:
        """Takes in the response to a DELETE: an object that is terminating, or, if it is gone at once, anything
        else."""
        if is_terminating(answer):
            self.remember(answer)
        else:
            self.store.forget(key, uid=uid)


class Caches:
    """`extras` are the resources of objects that jobs have besides pods and Services, as far as the cluster serves
    them. Nodes and priority classes are None where the operator does not watch them."""

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
        self.extras = {one.resource.kind: _children(one.resource, read_extra, one) for one in extras}
        self.nodes = _views(NODES, Node) if NODES in cluster_resources else None
        self.priorities = _views(PRIORITY_CLASSES, PriorityClass) if PRIORITY_CLASSES in cluster_resources else None
        self._claimed: dict[str, dict[tuple[str, str], ExtraView]] = {}

    def children(self, kind: str) -> Views[Any]:
        table: dict[str, Views[Any]] = {PODS.kind: self.pods, SERVICES.kind: self.services, **self.extras}
        return table[kind]

    def all_jobs(self) -> Iterable[Object]:
        for jobs in self.jobs.values():
            yield from jobs.store.all()

    def claim(self, job: str, extra: ExtraView) -> None:
        """Remembers an object of the job NAMESPACE/NAME that no watch shows, because it lacks the label and may not be
        changed."""
        self._claimed.setdefault(job, {})[extra.kind, extra.metadata.name] = extra

    def forget_claims(self, job: str) -> None:
        self._claimed.pop(job, None)

    def observe(self, job: ObjectMeta, *, taken_ports: frozenset[int]) -> Observed:
        """What the engine sees: the job's children, objects of others that carry its name, nodes and priorities."""
        classes = self.priorities.store.all() if self.priorities else ()
        concerned = (job.uid, f"{job.namespace}/{job.name}")
        extras = [one for views in self.extras.values() for one in views.store.by_index(_JOB, *concerned)]
        return Observed(
            pods=tuple(self.pods.store.by_index(_JOB, *concerned)),
            services=tuple(self.services.store.by_index(_JOB, *concerned)),
            taken_ports=taken_ports,
            extras=(*extras, *self._claimed.get(concerned[1], {}).values()),
            nodes=None if self.nodes is None else ByName(self.nodes.store),
            priorities={one.metadata.name: one.value for one in classes},
        )


class ByName(Mapping[str, Node]):
    """The Nodes of a store, without a copy: there may be thousands, and a plan looks at a few."""

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


def is_terminating(answer: Object) -> bool:
    """True if the response to a DELETE shows an object that still exists: its grace period runs, or a finalizer holds
    it. Without either it is gone, whether the server answers with its last state or with a Status."""
    metadata = answer.get("metadata") or {}
    return "deletionTimestamp" in metadata and bool(
        metadata.get("deletionGracePeriodSeconds") or metadata.get("finalizers")
    )


def _views(resource: Resource, view: type[V]) -> Views[V]:
    return Views(resource, view, Store(metadata=lambda one: one.metadata))


def _children(
    resource: Resource, convert: Callable[[Object], C] | type[C], extra: ExtraResource | None = None
) -> Views[C]:
    store = Store[C](metadata=lambda child: child.metadata, indexes={_JOB: _jobs_of}, matches=_has_job_label)
    return Views(resource, convert, store, extra)


def _has_job_label(child: Pod | ServiceView | ExtraView) -> bool:
    return JOB_NAME in child.metadata.labels


def _jobs_of(child: Pod | ServiceView | ExtraView) -> Iterable[str]:
    metadata = child.metadata
    owner = metadata.controller
    by_name = f"{metadata.namespace}/{metadata.labels.get(JOB_NAME, '')}"
    return (owner.uid, by_name) if owner else (by_name,)
