"""Themes of jobs whose pods are to be started together, for operators that were told of a gang scheduler."""

from tests.support.differential.case_writer import CaseWriter, Themes
from tests.support.differential.played_cases import Admit, Change, Exit, Start


def _together(write: CaseWriter) -> None:
    write.master()
    write.workers()
    if write.chance.random() < 0.5:
        write.run_policy(schedulingPolicy={"queue": "research", "priorityClass": "high", "scheduleTimeoutSeconds": 60})
    _start(write)
    write.succeed()


def _resources_named(write: CaseWriter) -> None:
    write.workers(2)
    write.run_policy(schedulingPolicy={"minAvailable": 1, "minResources": {"cpu": "1", "nvidia.com/gpu": "2"}})
    _start(write)
    write.succeed()


def _own_scheduler(write: CaseWriter) -> None:
    write.workers(2)
    write.template_of("Worker")["spec"]["schedulerName"] = "mine"
    _start(write)
    write.succeed()


def _never(write: CaseWriter) -> None:
    write.master(policy="Never")
    write.workers(policy="Never")
    _start(write)
    write.play(Exit("worker-0", 1))


def _suspended(write: CaseWriter) -> None:
    write.workers(2)
    _start(write)
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    _start(write)
    write.succeed()


def _born_suspended(write: CaseWriter) -> None:
    write.workers(1)
    write.run_policy(suspend=True)
    write.play(Change({"runPolicy": {"suspend": False}}))
    _start(write)


def _scaled(write: CaseWriter) -> None:
    write.workers(2)
    _start(write)
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}))
    write.play(Start())


def _some_requests(write: CaseWriter) -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    write.workers(2, resources=resources)
    _start(write)


def _start(write: CaseWriter) -> None:
    write.play(Admit())
    write.play(Start())


GANGS: Themes = {
    "started together": _together,
    "resources named": _resources_named,
    "suspended and resumed": _suspended,
    "own scheduler": _own_scheduler,
    "never restarted": _never,
    "born suspended": _born_suspended,
    "scaled": _scaled,
    "some requests": _some_requests,
}
