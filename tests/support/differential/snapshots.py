"""A job and its children without values that differ between any two runs, and the differences of two such snapshots."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.differential.cases import Case
from trainwright.objects import Object
from trainwright.objects.resources import (
    CONFIG_MAPS,
    EVENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)

_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")
TIMES = ("startTime", "completionTime", "lastReconcileTime")
COMPANIONS = ("HorizontalPodAutoscaler", "PodGroup")
EXTRAS = (CONFIG_MAPS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
_BY_SERVER = ("clusterIP", "clusterIPs")

Event = tuple[str, str, str]
"""Type, reason and message of an event."""


@dataclass(frozen=True)
class Snapshot:
    """One settled job and its children, which are named without the job's name: `worker-0`."""

    job: Object | None
    pods: Mapping[str, Object]
    services: Mapping[str, Object]
    companions: Mapping[str, Object]
    """Autoscaler and PodGroup, by kind."""
    extras: Mapping[str, Object]
    """What a launcher needs, by kind: ConfigMap, ServiceAccount, Role, RoleBinding."""
    events: Collection[Event]
    event_count: int
    """The number of events including repetitions."""

    @property
    def status(self) -> Object:
        status: Object = (self.job or {}).get("status") or {}
        return status

    @property
    def conditions(self) -> list[Event]:
        """The true conditions: type, reason and message."""
        return [
            (kind, reason, text) for kind, status, reason, text in self.status.get("conditions", []) if status == "True"
        ]

    @property
    def states(self) -> set[str]:
        """The types of the conditions that are true."""
        return {kind for kind, _, _ in self.conditions}

    @property
    def counted_roles(self) -> set[str]:
        return set(self.status.get("replicaStatuses") or {})


@dataclass(frozen=True)
class Difference:
    """`path` is that of the smallest value that differs; None if a side lacks it."""

    path: str
    go: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.path}\n      Go:   {self.go!r}\n      ours: {self.ours!r}"


def snapshots(
    cases: Sequence[Case], listed: Mapping[Resource, Sequence[Object]], *, namespace: str
) -> dict[str, Snapshot]:
    """The snapshots of the jobs of `namespace`, by name."""
    return {case.name: _snapshot(case, listed, namespace) for case in cases}


def differences(go: Snapshot, ours: Snapshot) -> Iterator[Difference]:
    yield from _compare("job", go.job, ours.job)
    yield from _compare("pods", go.pods, ours.pods)
    yield from _compare("services", go.services, ours.services)
    yield from _compare("companions", go.companions, ours.companions)
    yield from _compare("extras", go.extras, ours.extras)
    yield from (Difference("events", event, None) for event in sorted(set(go.events) - set(ours.events)))
    yield from (Difference("events", None, event) for event in sorted(set(ours.events) - set(go.events)))


def _snapshot(case: Case, listed: Mapping[Resource, Sequence[Object]], namespace: str) -> Snapshot:
    job = case.name

    def children(resource: Resource) -> dict[str, Object]:
        found = [obj for obj in listed[resource] if obj["metadata"]["name"].startswith(f"{job}-")]
        return {obj["metadata"]["name"].removeprefix(f"{job}-"): _child(obj, uid, namespace) for obj in found}

    def namesakes(resource: Resource) -> dict[str, Object]:
        found = [obj for obj in listed[resource] if obj["metadata"]["name"] == job]
        return {obj["kind"]: _child(obj, uid, namespace) for obj in found}

    whole = next((obj for obj in listed[case.kind.resource] if obj["metadata"]["name"] == job), None)
    uid = whole["metadata"]["uid"] if whole else ""
    events = [event for event in listed[EVENTS] if event["involvedObject"]["name"] == job]
    events_seen = [(event["type"], event["reason"], _anonymous(event["message"], namespace)) for event in events]
    return Snapshot(
        job=_anonymous(_job(whole), namespace) if whole else None,
        pods=children(PODS),
        services=children(SERVICES),
        extras={one.kind: child for one in EXTRAS for child in children(one).values()},
        companions={kind: child for one in listed if one.kind in COMPANIONS for kind, child in namesakes(one).items()},
        events=events_seen,
        event_count=sum(event.get("count") or 1 for event in events),
    )


def _job(job: Object) -> Object:
    status = {name: value for name, value in (job.get("status") or {}).items() if name != "conditions"}
    for time in TIMES:
        if status.get(time):
            status[time] = "set"
    status["conditions"] = [
        [condition["type"], condition["status"], condition["reason"], condition["message"]]
        for condition in (job.get("status") or {}).get("conditions") or []
    ]
    return {"spec": job["spec"], "status": status, "metadata": _metadata(job["metadata"], "")}


def _child(child: Object, uid: str, namespace: str) -> Object:
    seen: Object = {name: child[name] for name in ("data", "rules", "roleRef", "subjects") if name in child}
    seen["metadata"] = _metadata(child["metadata"], uid)
    if "spec" in child:
        seen["spec"] = {name: value for name, value in child["spec"].items() if name not in _BY_SERVER}
    if child["kind"] == "Pod":
        seen["phase"] = child["status"]["phase"]
    anonymous: Object = _anonymous(seen, namespace)
    return anonymous


def _metadata(metadata: Object, uid: str) -> Object:
    kept = {name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)}
    owners = [{**owner, "uid": owner["uid"] == uid} for owner in metadata.get("ownerReferences", [])]
    return {**kept, "owners": owners, "terminating": "deletionTimestamp" in metadata}


def _anonymous(value: Any, namespace: str) -> Any:
    """The same value without random names of the server and without the namespace's name."""
    match value:
        case dict():
            return {key: _anonymous(item, namespace) for key, item in value.items()}
        case list():
            return [_anonymous(item, namespace) for item in value]
        case str():
            return _TOKEN_VOLUME.sub("kube-api-access", value.replace(namespace, "NAMESPACE"))
        case _:
            return value


def _compare(path: str, go: Any, ours: Any) -> Iterator[Difference]:
    match go, ours:
        case dict(), dict():
            for key in sorted(go.keys() | ours.keys()):
                yield from _compare(f"{path}.{key}", go.get(key), ours.get(key))
        case list(), list() if len(go) == len(ours):
            for index, (one, other) in enumerate(zip(go, ours, strict=True)):
                yield from _compare(f"{path}.{index}", one, other)
        case _:
            if go != ours:
                yield Difference(path, go, ours)
