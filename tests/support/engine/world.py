"""A cluster as small as it can be, for driving the pure engine: objects with versions, a lagging watch, pods that are
played. It does what a real API server guarantees and not more."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from tests.support.objects.jobs import NOW
from trainwright.api.job import Job, read_job
from trainwright.engine import Create, Delete, Observed, Patch, Plan, Replace, ServiceView, Settings, plan
from trainwright.engine.observed_state import read_extra
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.pods import read_pod
from trainwright.objects.times import format_time

Shelf = dict[str, Object]
NODES = ("near", "far")


@dataclass
class World:
    """Objects are never changed in place, so that older states of the world can be kept and seen again."""

    settings: Settings
    now: datetime = NOW
    jobs: Shelf = field(default_factory=dict)
    pods: Shelf = field(default_factory=dict)
    services: Shelf = field(default_factory=dict)
    extras: Shelf = field(default_factory=dict)
    """By kind and name, such as `ConfigMap one-config`."""
    nodes: Shelf = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        kinds = ("jobs", "pods", "services", "extras", "nodes")
        self._past: dict[str, list[Shelf]] = {kind: [{}] for kind in kinds}
        for name in NODES:
            self.revive_node(name)
        self._seen = dict.fromkeys(self._past, 0)

    # What the operator does

    def look(self, name: str) -> tuple[Job, Observed] | None:
        """The job and its children as a watch that may lag behind shows them; None while it does not show the job."""
        jobs, pods, services, extras, nodes = (self._past[kind][seen] for kind, seen in self._seen.items())
        if name not in jobs:
            return None
        mine = tuple(read_pod(pod) for pod in pods.values() if _is_of(pod, name))
        views = tuple(msgspec.convert(one, ServiceView) for one in services.values() if _is_of(one, name))
        others = tuple(read_extra(one) for one in extras.values() if _is_of(one, name))
        known = {node: msgspec.convert(raw, Node) for node, raw in nodes.items()}
        return read_job(jobs[name]), Observed(mine, views, others, nodes=known)

    def apply(self, name: str, decided: Plan, version: str, *, writes: int = 1_000_000) -> bool:
        """Applies the plan as the operator does, and dies after so many writes; False if it was out of date."""
        if decided.status_follows:
            if self._has_status(name):
                return False  # a status is the operator's alone, and it knows what it has written
        elif decided.status is not None and writes > 0:
            writes -= 1
            if not self.write_status(name, decided.status, version):
                return False
        changes: list[Delete | Patch | Replace | Create] = [
            *decided.deletes,
            *decided.patches,
            *decided.replaces,
            *decided.creates,
        ]
        for change in changes[:writes]:
            if isinstance(change, Delete):
                self.delete(change.resource.plural, change.name, change.uid, force=change.force)
            elif isinstance(change, Patch):
                self.annotate(change)
            elif isinstance(change, Replace):
                self.replace(change.body)
            else:
                self.create(change.render())
        if decided.delete_job and writes > len(changes):
            self.delete_job(name)
        return True

    def _has_status(self, name: str) -> bool:
        return name not in self.jobs or bool(self.jobs[name].get("status"))

    def write_status(self, name: str, status: Object, version: str) -> bool:
        job = self.jobs.get(name)
        if job is None or job["metadata"]["resourceVersion"] != version:
            return False
        self._store_job({**job, "status": status})
        return True

    def create(self, obj: Object) -> None:
        kind = {"Pod": "pods", "Service": "services"}.get(obj["kind"], "extras")
        name = _extra_name(obj) if kind == "extras" else obj["metadata"]["name"]
        if name in self._shelf(kind):
            return
        number = self._next()
        given = {"uid": f"uid-{number}", "resourceVersion": str(number), "creationTimestamp": format_time(self.now)}
        created = {**obj, "metadata": {**obj["metadata"], **given}}
        if kind == "pods":
            living = [node for node in NODES if self._is_ready(node)]
            created["spec"] = {**obj["spec"], "nodeName": living[self._made % len(living)] if living else ""}
            created["status"] = {"phase": "Pending"}
        self._put(kind, name, created)

    def replace(self, obj: Object) -> None:
        """An update of an extra object; nothing happens if it has changed since it was read."""
        name, metadata = _extra_name(obj), obj["metadata"]
        present = self.extras.get(name)
        if present is None or present["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return
        self._put("extras", name, {**obj, "metadata": {**metadata, "resourceVersion": str(self._next())}})

    def annotate(self, patch: Patch) -> None:
        """A merge patch of annotations, which is all that plans change about pods here."""
        pod = self.pods.get(patch.name)
        if pod is None or pod["metadata"]["uid"] != patch.uid:
            return
        merged = {**(pod["metadata"].get("annotations") or {}), **patch.body["metadata"]["annotations"]}
        kept = {key: value for key, value in merged.items() if value is not None}
        self._put("pods", patch.name, {**pod, "metadata": {**pod["metadata"], "annotations": kept}})

    def delete(self, kind: str, name: str, uid: str, *, force: bool = False) -> None:
        obj = self._shelf(kind).get(name)
        if obj is None or obj["metadata"]["uid"] != uid:
            return
        if kind != "pods" or force:
            self._put(kind, name, None)
        elif "deletionTimestamp" not in obj["metadata"]:
            going = {
                "deletionTimestamp": format_time(self.now + timedelta(seconds=30)),
                "deletionGracePeriodSeconds": 30,
            }
            self._put(kind, name, {**obj, "metadata": {**obj["metadata"], **going}})

    def delete_job(self, name: str) -> None:
        self._put("jobs", name, None)
        for kind in ("pods", "services", "extras"):
            for child in [key for key, obj in self._shelf(kind).items() if _is_of(obj, name)]:
                self._put(kind, child, None)

    def catch_up(self, kind: str | None = None, steps: int = 1_000_000) -> None:
        """The watch of one kind of objects, or of all, sees that many changes more."""
        for each in [kind] if kind else list(self._past):
            self._seen[each] = min(self._seen[each] + steps, len(self._past[each]) - 1)

    # What a quiet cluster does

    def settle(self, name: str) -> None:
        """The operator works, deleted pods go and new ones start, until nothing is left to do. It takes its time, so
        that nothing has to wait."""
        for _ in range(20):
            self.now += timedelta(minutes=6)
            wrote = self._reconcile(name)
            going = [pod for pod, raw in self.pods.items() if "deletionTimestamp" in raw["metadata"]]
            for pod in going:
                self.remove_pod(pod)
            waiting = [pod for pod, raw in self.pods.items() if raw["status"]["phase"] == "Pending"]
            for pod in waiting:
                self.start_pod(pod)
            if not (wrote or going or waiting):
                return
        raise AssertionError(f"no rest: {self.jobs}")

    def _reconcile(self, name: str) -> bool:
        """One look of an operator that sees everything; True if it wrote anything."""
        self.catch_up()
        seen = self.look(name)
        assert seen is not None
        decided = plan(*seen, self.settings, self.now)
        self.apply(name, decided, seen[0].metadata.resource_version)
        return not decided.empty

    # What users do

    def put_job(self, raw: Object) -> None:
        self._store_job(raw)

    def edit_job(self, name: str, spec: Object) -> None:
        self._store_job({**self.jobs[name], "spec": spec})

    # What kubelets do

    def start_pod(self, name: str) -> None:
        self._set_pod(name, self._container_status(name, "Running", {"running": {}}))

    def restart_container(self, name: str) -> None:
        restarts = self.restarts_of(name) + 1
        self._set_pod(name, self._container_status(name, "Running", {"running": {}}, restarts))

    def end_pod(self, name: str, exit_code: int) -> None:
        phase = "Failed" if exit_code else "Succeeded"
        state = {"terminated": {"exitCode": exit_code, "finishedAt": format_time(self.now)}}
        self._set_pod(name, self._container_status(name, phase, state, self.restarts_of(name)))

    def evict_pod(self, name: str) -> None:
        self._set_pod(name, {"phase": "Failed", "reason": "Evicted"})

    def remove_pod(self, name: str) -> None:
        self._put("pods", name, None)

    def kill_node(self, name: str) -> None:
        """The kubelet is silent, and the cluster has noticed."""
        self._put("nodes", name, _node(name, "Unknown", self.now))

    def remove_node(self, name: str) -> None:
        self._put("nodes", name, None)

    def revive_node(self, name: str) -> None:
        self._put("nodes", name, _node(name, "True", self.now))

    def is_stranded(self, name: str) -> bool:
        """Whether the pod was bound to a node that is dead now: whatever happens to it, nobody reports it."""
        node = self.pods[name]["spec"]["nodeName"]
        return node != "" and not self._is_ready(node)

    def _is_ready(self, node: str) -> bool:
        return node in self.nodes and msgspec.convert(self.nodes[node], Node).ready

    def restarts_of(self, name: str) -> int:
        statuses = self.pods[name]["status"].get("containerStatuses") or [{}]
        return int(statuses[0].get("restartCount", 0))

    # Bookkeeping

    def _container_status(self, pod: str, phase: str, state: Object, restarts: int = 0) -> Object:
        container = self.pods[pod]["spec"]["containers"][0]["name"]
        return {"phase": phase, "containerStatuses": [{"name": container, "restartCount": restarts, "state": state}]}

    def _set_pod(self, name: str, status: Object) -> None:
        self._put("pods", name, {**self.pods[name], "status": status})

    def _store_job(self, raw: Object) -> None:
        metadata = {**raw["metadata"], "resourceVersion": str(self._next())}
        self._put("jobs", metadata["name"], {**raw, "metadata": metadata})

    def _shelf(self, kind: str) -> Shelf:
        return {
            "jobs": self.jobs,
            "pods": self.pods,
            "services": self.services,
            "extras": self.extras,
            "nodes": self.nodes,
        }[kind]

    def _put(self, kind: str, name: str, obj: Object | None) -> None:
        shelf = self._shelf(kind)
        if obj is None:
            shelf.pop(name, None)
        else:
            shelf[name] = obj
        self._past[kind].append(dict(shelf))

    def _next(self) -> int:
        self._made += 1
        return self._made


def conditions_of(job: Object) -> list[Object]:
    return list((job.get("status") or {}).get("conditions") or [])


def _extra_name(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def _is_of(obj: Object, job: str) -> bool:
    return any(owner["name"] == job for owner in obj["metadata"].get("ownerReferences", []))


def _node(name: str, ready: str, since: datetime) -> Object:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(since)}
    return {"metadata": {"name": name}, "status": {"conditions": [condition]}}
