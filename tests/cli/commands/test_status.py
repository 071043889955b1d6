"""The states that `status` shows, and how it counts them."""

from datetime import timedelta

from tests.support.objects.jobs import NOW, JobBuilder
from trainwright.api.kinds import PYTORCH
from trainwright.cli.commands.status import (
    Usage,
    count_by_state,
    failed_checks,
    gpu_lines,
    job_lines,
    node_state,
    sandbox_text,
    unmet,
    used_seconds,
)
from trainwright.cli.jobs.references import FoundJob
from trainwright.cluster.facade import PodProcess
from trainwright.objects import Object
from trainwright.objects.times import format_time


def job(name: str, state: str, finished: int = 0) -> FoundJob:
    status = {
        "conditions": [{"type": state, "status": "True"}],
        "startTime": format_time(NOW),
        **({"completionTime": format_time(NOW + timedelta(seconds=finished))} if finished else {}),
    }
    raw = JobBuilder(name).replica("Master").status(status).raw()
    raw["metadata"] |= {"uid": name, "creationTimestamp": format_time(NOW)}
    return FoundJob(PYTORCH, raw)


def test_unfinished_jobs_and_the_latest_finished_ones_are_named_with_their_use() -> None:
    jobs = [job(f"done-{number}", "Succeeded", 1 + number) for number in range(7)] + [job("busy", "Running")]
    lines = job_lines(jobs, {"busy": Usage(1.5, 3 * 2**20)}, NOW + timedelta(seconds=9))
    assert lines[0].split()[-2:] == ["CPU", "MEMORY"]
    assert [line.split()[1] for line in lines[1:-1]] == [*(f"done-{number}" for number in range(2, 7)), "busy"]
    assert lines[-2].split()[-3:] == ["1.5", "3.0", "MiB"]
    assert lines[-1] == "and 2 more that have finished: `trainwright ps -A`"
    assert job_lines([], {}, NOW) == []


def test_cpu_is_that_of_the_moment() -> None:
    def process(pid: int, seconds: float) -> PodProcess:
        return PodProcess(pid=pid, command=(), cpu_seconds=seconds, memory=0)

    assert used_seconds({1: process(1, 10.0)}, [process(1, 10.5), process(2, 0.25)]) == 0.75


def test_the_reason_of_a_weak_sandbox_is_shown() -> None:
    message = "ready (sandbox plain: in a user namespace: not permitted)"
    node = {"status": {"conditions": [{"type": "Ready", "status": "True", "message": message}]}}
    assert sandbox_text("plain", [node]).endswith("overlay does not work here: in a user namespace: not permitted")
    assert sandbox_text("overlay", []).startswith("overlay: ")


def test_limits_that_are_not_enforced_and_ports_that_are_shared_are_shown() -> None:
    def node(status: str, type_: str = "LimitsEnforced") -> Object:
        condition = {"type": type_, "status": status, "message": f"{type_}: no groups"}
        return {"status": {"conditions": [condition]}}

    nodes = [node("False"), node("False", "OwnPorts"), node("True"), {}]
    assert unmet(nodes, "LimitsEnforced") == ["LimitsEnforced: no groups"]
    assert unmet(nodes, "OwnPorts") == ["OwnPorts: no groups"]


def test_gpus_are_counted_by_the_pods_that_have_them() -> None:
    def pod(phase: str, gpus: str, node: str = "local") -> Object:
        resources = {"limits": {"nvidia.com/gpu": gpus}}
        spec = {"nodeName": node, "containers": [{"name": "a", "resources": resources}, {"name": "b"}]}
        return {"spec": spec, "status": {"phase": phase}}

    labels = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    node = {"metadata": {"labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    pods = [pod("Running", "1"), pod("Pending", "2"), pod("Succeeded", "4"), pod("Pending", "4", node="")]
    assert gpu_lines([node], pods) == ["  gpus     3 of 4 NVIDIA-H200 assigned to pods"]
    assert gpu_lines([{"status": {"allocatable": {"cpu": "2"}}}], pods) == []


def test_the_most_frequent_state_comes_first() -> None:
    assert count_by_state(["Running", "Failed", "Running"]) == "2 Running, 1 Failed"
    assert count_by_state([]) == "none"


def test_a_node_is_ready_by_its_condition() -> None:
    assert node_state({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}) == "Ready"
    assert node_state({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}) == "NotReady"
    assert node_state({}) == "NotReady"


def test_failed_checks_are_read_from_the_readiness_report() -> None:
    report = b"[+]ping ok\n[-]node failed: reason withheld\n[-]volumes failed: reason withheld\nreadyz check failed\n"
    assert failed_checks(report) == ["node", "volumes"]
    assert failed_checks(b"[+]ping ok\nreadyz check passed\n") == []
