"""Explanations of differences from the Go operator that only MPIJobs show."""

import re
from collections.abc import Iterable
from dataclasses import replace

from tests.support.differential.comparisons import Comparison, Divergence, Explanation
from tests.support.differential.snapshots import Difference, Event

_REPLACING = ("OnFailure", "Always", "ExitCode")
_AGAIN = ("launcher pod created failed:", "worker pod created failed:")
_UNWRITTEN_STATES = (
    "MPIJob NAMESPACE/{} has failed",
    "MPIJob NAMESPACE/{} successfully completed.",
    "MPIJob NAMESPACE/{} is running",
)


def _is_event(difference: Difference, *reasons: str) -> bool:
    event = difference.go or difference.ours
    return difference.path == "events" and event[1] in reasons


def _creation_event(difference: Difference, comparison: Comparison) -> bool:
    """Both sides say that the pod was created, each in its own words."""
    if difference.path != "events":
        return False
    said = _created_pod(difference.go or difference.ours)
    other = comparison.ours if difference.go else comparison.go
    return bool(said) and said in map(_created_pod, other.events)


def _created_pod(event: Event) -> str:
    """The name of the pod whose creation the event reports; empty for other events."""
    _, reason, message = event
    words = ("Created pod: ", "Created worker pod: ") if reason == "SuccessfulCreatePod" else ()
    for start in (*words, "launcher pod created success: "):
        if message.startswith(start):
            return message.removeprefix(start)
    return ""


def _created_twice(difference: Difference, _: Comparison) -> bool:
    if difference.path != "events" or not difference.go:
        return False
    _, reason, message = difference.go
    return bool(message.startswith(_AGAIN) or (reason, message) == ("FailedCreatePod", "Created worker pod: "))


def _state_event(difference: Difference, comparison: Comparison) -> bool:
    texts = [text.format(comparison.case.name) for text in _UNWRITTEN_STATES]
    return difference.path == "events" and bool(difference.go) and difference.go[2] in texts


def _variable_of_open_mpi_5(difference: Difference, _: Comparison) -> bool:
    if not re.fullmatch(r"pods\.launcher\.spec\.containers\.\d+\.env", difference.path):
        return False
    return bool([one for one in difference.ours if not one["name"].startswith("PRTE_")] == difference.go)


def _other_workers(difference: Difference, _: Comparison) -> bool:
    """Ours names other workers than Go does, in the order of their indexes. All other lines are the same."""
    if difference.path != "extras.ConfigMap.data.discover_hosts.sh":
        return False
    other_lines, _unsorted = _lines_and_workers(difference.go)
    our_lines, indexes = _lines_and_workers(difference.ours)
    return our_lines == other_lines and indexes == sorted(set(indexes))


def _lines_and_workers(script: str) -> tuple[list[str], list[int]]:
    """The lines that name no worker, and the indexes of the workers that are named."""
    workers = {line: found for line in script.split("\n") if (found := re.fullmatch(r"echo .*-worker-(\d+):\d+", line))}
    return [line for line in script.split("\n") if line not in workers], [int(one[1]) for one in workers.values()]


def _doubled_prefix(difference: Difference, _: Comparison) -> bool:
    return (difference.go, difference.ours) == ("MPIJobMPIJobFailed", "MPIJobFailed")


def _leaves_failed_pods(comparison: Comparison) -> bool:
    """A pod whose policy says that it is replaced, or that its exit code fails the job, has failed."""
    go, ours, case = comparison.go, comparison.ours, comparison.case
    if case.kind.name != "MPIJob":
        return False
    policies = {name: case.roles.get("Launcher" if name == "launcher" else "Worker") or {} for name in go.pods}
    left = [name for name, pod in go.pods.items() if pod["phase"] == "Failed"]
    replaced = any(policies[name].get("restartPolicy") in _REPLACING for name in left)
    return replaced or ("Failed" in go.states and "Failed" not in ours.states)


def _rejects_letter_case(comparison: Comparison) -> bool:
    problem = "MPIJob failed validation because MPIReplicaType is"
    rejected = any(message.startswith(problem) for _, _, message in comparison.go.events)
    return rejected and bool(comparison.ours.pods)


def _of_mpi(explanations: Iterable[Explanation]) -> tuple[Explanation, ...]:
    """The explanations for MPIJobs alone."""

    def restricted(one: Explanation) -> Explanation:
        return replace(one, matches=lambda found, of: of.case.kind.name == "MPIJob" and one.matches(found, of))

    return tuple(map(restricted, explanations))


MPI_DIVERGENCES = (
    Divergence("Failed pods of an MPIJob are never replaced", _leaves_failed_pods),
    Divergence("Roles of an MPIJob in another letter case are invalid", _rejects_letter_case),
    Divergence(
        "Names of an MPIJob's pods may exceed 63 characters",
        lambda of: of.case.kind.name == "MPIJob" and of.failed(of.ours, "and the maximum is 63") and of.go.pods,
    ),
)

MPI_EXPLANATIONS = _of_mpi(
    (
        Explanation(
            "The objects of an MPIJob's launcher have only the label `app`",
            lambda found, _: (
                found.go is None
                and re.fullmatch(r"extras\.\w+\.metadata\.labels\.training\.kubeflow\.org/.*", found.path)
            ),
        ),
        Explanation(
            "The launcher of an MPIJob starts before its workers",
            lambda found, _: (
                found.go is None and re.fullmatch(r"pods\.launcher\.spec\.initContainers\.\d+\.command", found.path)
            ),
        ),
        Explanation("Open MPI 5 ignores the variables of a launcher", _variable_of_open_mpi_5),
        Explanation(
            "The launcher of an MPIJob without workers may exec into all pods",
            lambda found, _: (
                found.path == "extras.Role.rules" and found.go[:1] == found.ours and "resourceNames" not in found.go[1]
            ),
        ),
        Explanation(
            "`ServiceAccount is exist`",
            lambda found, _: _is_event(
                found, "ServiceAccount is exist", "LauncherRole is exist", "RoleBinding is exist"
            ),
        ),
        Explanation("The events about pods of an MPIJob", _creation_event),
        Explanation(
            "The exit codes of an MPIJob's pods are not recorded",
            lambda found, _: not found.go and _is_event(found, "ExitedWithCode"),
        ),
        Explanation(
            "A child that the cache does not show yet is created a second time", _created_twice, sometimes=True
        ),
        Explanation("An MPIJob gets a second event about its state", _state_event, sometimes=True),
        Explanation("The reason of a failed MPIJob is `MPIJobMPIJobFailed`", _doubled_prefix),
        Explanation("`discover_hosts.sh` names workers that are being deleted", _other_workers),
        Explanation(
            "`replicaStatuses` of an MPIJob count pods that are being deleted",
            lambda found, _: (
                re.fullmatch(r"job\.status\.replicaStatuses\.\w+\.active", found.path)
                and (found.go or 0) > (found.ours or 0)
            ),
        ),
        Explanation(
            "`SettedPodTemplateRestartPolicy`",
            lambda found, _: _is_event(found, "SetPodTemplateRestartPolicy", "SettedPodTemplateRestartPolicy"),
        ),
    )
)

MPI_GANG_EXPLANATIONS = _of_mpi(
    (
        Explanation(
            "`SettedPodTemplateSchedulerName`",
            lambda found, _: _is_event(found, "SettedPodTemplateSchedulerName", "SetPodTemplateSchedulerName"),
        ),
        Explanation(
            "While a PodGroup is pending, an MPIJob has no ConfigMap",
            lambda found, of: found.go is None and re.fullmatch(r"extras\.\w+", found.path) and not of.go.pods,
        ),
    )
)
"""For operators with a gang scheduler."""
