"""The columns of `kubectl get pods` for each state of a pod."""

from datetime import UTC, datetime
from typing import Any

import pytest

from trainwright.cluster.apiserver.resources.columns.workload_printer_columns import POD, pod_status

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


def container(**state: Any) -> dict[str, Any]:
    return {"name": "c", "ready": "running" in state, "state": state}


def waiting(reason: str) -> dict[str, Any]:
    return container(waiting={"reason": reason})


def ended(code: int, **more: Any) -> dict[str, Any]:
    return container(terminated={"exitCode": code, **more})


STARTING = {"initContainerStatuses": [ended(0)], "containerStatuses": [waiting("PodInitializing")]}
INITS = {"initContainers": [{"name": "i"}, {"name": "j"}]}


@pytest.mark.parametrize(
    ("expected", "status", "spec", "metadata"),
    [
        ("Pending", {"phase": "Pending"}, {}, {}),
        ("Unknown", {}, {}, {}),
        ("ContainerCreating", {"phase": "Pending", "containerStatuses": [waiting("ContainerCreating")]}, {}, {}),
        ("CrashLoopBackOff", {"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}, {}, {}),
        ("Running", {"phase": "Running", "containerStatuses": [container(running={})]}, {}, {}),
        ("Completed", {"phase": "Succeeded", "containerStatuses": [ended(0, reason="Completed")]}, {}, {}),
        ("Error", {"phase": "Failed", "containerStatuses": [ended(1, reason="Error")]}, {}, {}),
        ("ExitCode:3", {"phase": "Failed", "containerStatuses": [ended(3)]}, {}, {}),
        ("Signal:9", {"phase": "Failed", "containerStatuses": [ended(137, signal=9)]}, {}, {}),
        ("Evicted", {"phase": "Failed", "reason": "Evicted"}, {}, {}),
        ("Init:0/2", {"phase": "Pending", "initContainerStatuses": [container(running={})]}, INITS, {}),
        ("Init:1/2", {"initContainerStatuses": [ended(0), container(running={})]}, INITS, {}),
        ("Init:0/2", {"initContainerStatuses": [waiting("PodInitializing")]}, INITS, {}),
        ("Init:Error", {"initContainerStatuses": [ended(1, reason="Error")]}, INITS, {}),
        ("Init:ExitCode:1", {"initContainerStatuses": [ended(1)]}, INITS, {}),
        ("Init:CrashLoopBackOff", {"initContainerStatuses": [waiting("CrashLoopBackOff")]}, INITS, {}),
        ("PodInitializing", STARTING, INITS, {}),
        ("Terminating", {"phase": "Running"}, {}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ("Succeeded", {"phase": "Succeeded"}, {}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ],
)  # fmt: skip
def test_status(expected: str, status: Any, spec: Any, metadata: Any) -> None:
    assert pod_status({"metadata": metadata, "spec": spec, "status": status}) == expected


def test_restarts_show_the_last_one() -> None:
    last = {"terminated": {"finishedAt": "2026-01-01T00:08:00Z"}}
    restarted = container(running={}) | {"restartCount": 2, "lastState": last}
    pod = {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c"}, {"name": "d"}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "127.64.0.1", "containerStatuses": [restarted]},
    }
    cells = [column.cell(pod, NOW) for column in POD]
    assert cells == ["p", "1/2", "Running", "2 (2m ago)", "10m", "127.64.0.1", "n", "<none>", "<none>"]
