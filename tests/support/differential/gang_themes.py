"""Themes of generated cases for operators with a gang scheduler."""

from tests.support.differential.case_builder import CaseBuilder, Themes
from tests.support.differential.cases import Admit, Change, Exit, Start


def _together(case: CaseBuilder) -> None:
    case.leader()
    case.workers()
    if case.dice.random() < 0.5:
        case.run_policy(schedulingPolicy={"queue": "research", "priorityClass": "high", "scheduleTimeoutSeconds": 60})
    _start(case)
    case.succeed()


def _resources_named(case: CaseBuilder) -> None:
    case.workers(2)
    case.run_policy(schedulingPolicy={"minAvailable": 1, "minResources": {"cpu": "1", "nvidia.com/gpu": "2"}})
    _start(case)
    case.succeed()


def _own_scheduler(case: CaseBuilder) -> None:
    case.workers(2)
    case.template_of("Worker")["spec"]["schedulerName"] = "mine"
    _start(case)
    case.succeed()


def _never(case: CaseBuilder) -> None:
    case.leader(policy="Never")
    case.workers(policy="Never")
    _start(case)
    case.then(Exit("worker-0", 1))


def _suspended(case: CaseBuilder) -> None:
    case.workers(2)
    _start(case)
    case.then(Change({"runPolicy": {"suspend": True}}))
    case.then(Change({"runPolicy": {"suspend": False}}))
    _start(case)
    case.succeed()


def _created_suspended(case: CaseBuilder) -> None:
    case.workers(1)
    case.run_policy(suspend=True)
    case.then(Change({"runPolicy": {"suspend": False}}))
    _start(case)


def _scaled(case: CaseBuilder) -> None:
    case.workers(2)
    _start(case)
    case.then(Change(case.change("Worker", {"replicas": 3})))
    case.then(Start())


def _some_requests(case: CaseBuilder) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    case.workers(2, resources=resources)
    _start(case)


def _start(case: CaseBuilder) -> None:
    case.then(Admit())
    case.then(Start())


GANGS: Themes = {
    "started together": _together,
    "resources named": _resources_named,
    "suspended and resumed": _suspended,
    "own scheduler": _own_scheduler,
    "never restarted": _never,
    "created suspended": _created_suspended,
    "scaled": _scaled,
    "some requests": _some_requests,
}
