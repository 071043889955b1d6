"""Shorthands for tests of the engine: plan, and read what came out."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, services
from trainwright.engine import Observed, Plan, ServiceView, Settings, plan, read_extra
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node

DNS = Settings()
STARTED: Object = {
    "conditions": [
        {
            "type": "Created",
            "status": "True",
            "reason": "PyTorchJobCreated",
            "message": "PyTorchJob digits is created.",
            "lastUpdateTime": "2026-11-15T04:00:00Z",
            "lastTransitionTime": "2026-11-15T04:00:00Z",
        }
    ],
    "startTime": "2026-11-15T04:00:00Z",
}
"""The status of a job that the operator has seen once."""


def decide(
    builder: JobBuilder,
    *pods: PodBuilder,
    services: Iterable[ServiceView] = (),
    settings: Settings = DNS,
    now: datetime = NOW,
    extras: Iterable[Object] = (),
    nodes: Mapping[str, Node] | None = None,
    priorities: Mapping[str, int] | None = None,
) -> Plan:
    observed = Observed(
        tuple(pod.pod() for pod in pods),
        tuple(services),
        extras=tuple(map(read_extra, extras)),
        nodes=nodes,
        priorities=priorities or {},
    )
    return plan(builder.job(), observed, settings, now)


def conditions(made: Plan) -> list[tuple[str, str, str, str]]:
    """Type, status, reason and message of each, in order."""
    assert made.status is not None
    return [(one["type"], one["status"], one["reason"], one["message"]) for one in made.status["conditions"]]


def states(made: Plan) -> list[tuple[str, str]]:
    """Type and status of each condition, in order."""
    return [(kind, status) for kind, status, _, _ in conditions(made)]


def events(made: Plan) -> list[tuple[str, str, str]]:
    return [(event.type, event.reason, event.message) for event in made.events]


def standing_events(made: Plan) -> list[tuple[str, str]]:
    assert all(event.type == "Warning" and event.standing for event in made.standing_events)
    return [(event.reason, event.message) for event in made.standing_events]


def manifests(made: Plan) -> list[Object]:
    """All children that the plan creates, rendered."""
    return [create.render() for create in made.creates]


def created(made: Plan, kind: str = "Pod") -> list[str]:
    return [create.name for create in made.creates if create.resource.kind == kind]


def deleted(made: Plan, plural: str = "pods") -> list[str]:
    return [delete.name for delete in made.deletes if delete.resource.plural == plural]


def child(made: Plan, name: str, kind: str = "Pod") -> Object:
    (found,) = [one.render() for one in made.creates if (one.resource.kind, one.name) == (kind, name)]
    return found


def env(pod: Object, container: int = 0) -> list[tuple[str, str]]:
    return [(entry["name"], entry["value"]) for entry in pod["spec"]["containers"][container]["env"]]


def all_services(workers: int = 2, *, master: bool = True) -> tuple[ServiceView, ...]:
    return services(*([("Master", 0)] if master else []), *(("Worker", index) for index in range(workers)))
