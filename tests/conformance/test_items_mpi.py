"""Items 30 to 44 and 73 to 77: MPIJobs on the real API server. What all kinds have in common is in
`test_items_suspension.py`."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import environment
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder, template
from trainwright.api.kinds.mpi import MPI
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource

pytestmark = pytest.mark.apiserver


def job(name: str = "job", workers: int = 1, **launcher: object) -> JobBuilder:
    builder = JobBuilder(name, kind=MPI).replica("Launcher", 1, pod=template(name="main", **launcher))
    return builder.workers(workers, pod=template(name="main"))


GPUS = {"nvidia": ("nvidia.com/gpu", True), "vendor": ("vendor-domain/gpu", True), "other": ("vendor.com/cpu", False)}


async def test_item_30_a_launcher_with_gpus_is_the_first_host(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    for name, (resource, _) in GPUS.items():
        await jobs.submit(job(name, resources={"limits": {resource: "1"}}))
    for name, (_, is_gpu) in GPUS.items():
        worker = f"{name}-worker-0 slots=1\n"
        await jobs.wait_for_children(name, [f"{name}-launcher", f"{name}-worker-0"])
        config = await jobs.client.get(CONFIG_MAPS, f"{name}-config", namespace=jobs.namespace)
        assert config["data"]["hostfile"] == (f"{name}-launcher slots=1\n{worker}" if is_gpu else worker)


async def test_items_31_33_the_launcher_has_succeeded(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    await jobs.submit(job(workers=8))
    await jobs.wait_until_running("job")
    await jobs.end("job-launcher", exit_code=0)
    finished = await jobs.wait_for_end("job", "Succeeded")
    assert finished["status"]["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {}}


async def test_item_32_the_launcher_has_failed(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    await jobs.submit(job())
    await jobs.wait_until_running("job")
    await jobs.end("job-launcher", exit_code=1)
    finished = await jobs.wait_for_end("job", "Failed")
    assert finished["status"]["replicaStatuses"] == {"Launcher": {"failed": 1}, "Worker": {}}


class Count(NamedTuple):
    workers: int
    waiting: str
    """The role whose pods do not start."""
    counts: Object


COUNTS = {
    34: Count(8, "Worker", {"Launcher": {"active": 1}, "Worker": {}}),
    35: Count(8, "", {"Launcher": {"active": 1}, "Worker": {"active": 8}}),
    36: Count(16, "Launcher", {"Launcher": {}, "Worker": {"active": 16}}),
}


@pytest.mark.parametrize("item", COUNTS)
async def test_items_34_35_36_pods_that_run_are_counted(harness: RealClusterHarness, item: int) -> None:
    jobs, row = harness.of(MPI), COUNTS[item]
    builder = job(workers=row.workers)
    for role, spec in builder.object["spec"]["mpiReplicaSpecs"].items():
        if role == row.waiting:
            spec["template"]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    await jobs.submit(builder)
    for role, counts in row.counts.items():
        await jobs.wait_for_counts("job", role, **counts)
    await jobs.settle()
    assert (await jobs.status("job"))["replicaStatuses"] == row.counts


async def test_item_37_a_job_that_no_longer_exists_causes_no_error(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    await jobs.submit(job())
    await jobs.wait_until_running("job")
    await jobs.client.delete(MPI.resource, "job", namespace=jobs.namespace)
    await jobs.client.delete(PODS, "job-worker-0", namespace=jobs.namespace)
    await jobs.settle()
    assert not await jobs.exists("job")
    assert {event for event in await jobs.events("job") if event[0] == "Warning"} == set()


async def test_item_38_a_service_account_that_exists_is_used(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    made = await jobs.client.create(SERVICE_ACCOUNTS, foreign(SERVICE_ACCOUNTS, "robot", jobs.namespace))
    builder = job()
    builder.object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["serviceAccountName"] = "robot"
    await jobs.submit(builder)
    await jobs.wait_until_running("job")
    assert (await jobs.pods("job"))["job-launcher"]["spec"]["serviceAccountName"] == "robot"
    binding = await jobs.client.get(ROLE_BINDINGS, "job-launcher", namespace=jobs.namespace)
    assert [one["name"] for one in binding["subjects"]] == ["robot"]
    await jobs.settle()
    account = await jobs.client.get(SERVICE_ACCOUNTS, "robot", namespace=jobs.namespace)
    assert account["metadata"] == made["metadata"]
    assert {reason for kind, reason, _ in await jobs.events("job") if kind == "Warning"} == set()


FOREIGN = {
    73: (SERVICE_ACCOUNTS, "job-launcher"),
    39: (PODS, "job-launcher"),
    40: (PODS, "job-worker-0"),
    41: (CONFIG_MAPS, "job-config"),
    42: (ROLES, "job-launcher"),
    43: (ROLE_BINDINGS, "job-launcher"),
}


@pytest.mark.parametrize("item", FOREIGN)
async def test_items_39_40_41_42_43_73_objects_of_others_are_not_touched(
    harness: RealClusterHarness, item: int
) -> None:
    """The text is ours, and that a ServiceAccount of that name is not used either: rows of docs/compatibility.md."""
    jobs, (resource, name) = harness.of(MPI), FOREIGN[item]
    made = await jobs.client.create(resource, foreign(resource, name, jobs.namespace))
    await jobs.submit(job())
    text = (
        f'Resource "{name}" of Kind "{resource.kind}" already exists and is not managed by MPIJob job: '
        "delete it, or give the job another name"
    )
    await jobs.wait_for_events("job", ("Warning", "ErrResourceExists", text))
    found = await jobs.client.get(resource, name, namespace=jobs.namespace)
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert "ownerReferences" not in found["metadata"]
    assert "job-launcher" not in await jobs.pods("job")  # it would start processes in job-worker-0


def foreign(resource: Resource, name: str, namespace: str) -> Object:
    contents: dict[str, Object] = {
        "Pod": template(name="other"),
        "RoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "other"}},
    }
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        **contents.get(resource.kind, {}),
    }


BOOTSTRAP, EXEC = "I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_EXEC"
INTEL: dict[str, dict[str, str]] = {
    "neither": {},
    "first": {BOOTSTRAP: "ssh"},
    "second": {EXEC: "/usr/bin/ssh"},
    "both": {BOOTSTRAP: "ssh", EXEC: "/usr/bin/ssh"},
}


async def test_item_44_variables_of_intel_mpi_are_defaults(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    for name, own in INTEL.items():
        await jobs.submit(job(name, env=[{"name": key, "value": value} for key, value in own.items()]))
    for name, own in INTEL.items():
        await jobs.wait_for_children(name, [f"{name}-launcher", f"{name}-worker-0"])
        launcher = (await jobs.pods(name))[f"{name}-launcher"]
        names = [entry["name"] for entry in launcher["spec"]["containers"][0]["env"]]
        assert (names.count(BOOTSTRAP), names.count(EXEC)) == (1, 1)
        variables = {key: value for key, value in environment_with_empty(launcher).items() if key in {BOOTSTRAP, EXEC}}
        assert variables == {BOOTSTRAP: "rsh", EXEC: "/etc/mpi/kubexec.sh", **own}


@pytest.mark.parametrize("policy", ["Running", "All"])
async def test_item_74_workers_are_deleted_after_success(harness: RealClusterHarness, policy: str) -> None:
    jobs = harness.of(MPI)
    await jobs.submit(job(workers=2).spec(cleanPodPolicy=policy))
    await jobs.wait_until_running("job")
    await jobs.end("job-launcher", exit_code=0)
    await jobs.wait_for_end("job", "Succeeded")
    await jobs.wait_for_children("job", ["job-launcher"] if policy == "Running" else [])


async def test_item_75_a_job_whose_pods_run_is_running(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    await jobs.submit(job(workers=8))
    await jobs.wait_for_counts("job", "Launcher", active=1)
    await jobs.wait_for_counts("job", "Worker", active=8)
    last = (await jobs.status("job"))["conditions"][-1]
    shown = {name: last[name] for name in ("type", "status", "reason", "message")}
    assert shown == {
        "type": "Running",
        "status": "True",
        "reason": "MPIJobRunning",
        "message": "MPIJob job is running.",
    }


async def test_item_76_the_launcher_waits_until_its_workers_are_ready(
    harness: RealClusterHarness, job_plane: ControlPlane, tmp_path: Path
) -> None:
    """In its init container, with the real kubectl: a row of docs/compatibility.md."""
    jobs, workers = harness.of(MPI), [f"job-worker-{index}" for index in range(12)]
    builder = job(workers=len(workers))
    worker = builder.object["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["schedulingGates"] = [{"name": "example.com/wait"}]
    await jobs.submit(builder)
    await jobs.wait_for_children("job", ["job-launcher", *workers])
    config = await jobs.client.get(CONFIG_MAPS, "job-config", namespace=jobs.namespace)
    (tmp_path / "hostfile").write_text(config["data"]["hostfile"])
    (delivery,) = (await jobs.pods("job"))["job-launcher"]["spec"]["initContainers"]
    script = delivery["command"][-1].replace("/etc/mpi", str(tmp_path)).replace("/opt/kube", str(tmp_path))

    waiting = await start_script(
        script.replace("--timeout=10s", "--timeout=2s"),
        {
            **environment({"spec": {"containers": [delivery]}}),
            "HOME": str(tmp_path),  # of kubectl's cache
            "KUBECONFIG": str(job_plane.kubeconfig),
            "PATH": f"{job_plane.kubectl.parent}:{os.environ['PATH']}",
        },
    )

    assert waiting.stdout is not None
    assert (await waiting.stdout.readline()).startswith(b"waiting for workers: ")
    for name in workers:
        await jobs.client.patch(PODS, name, {"spec": {"schedulingGates": []}}, namespace=jobs.namespace)
    assert await waiting.wait() == 0
    assert b"starting after" not in await waiting.stdout.read()
    assert os.access(tmp_path / "kubectl", os.X_OK)
    await jobs.wait_for_counts("job", "Worker", active=len(workers))


async def start_script(script: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("/bin/sh", "-c", script, env=env, stdout=asyncio.subprocess.PIPE)


async def test_item_77_the_files_of_mpirun_follow_the_workers(harness: RealClusterHarness) -> None:
    jobs = harness.of(MPI)
    await jobs.submit(job(workers=1).spec(slotsPerWorker=4))
    for workers in (1, 12, 2):
        await jobs.change("job", mpiReplicaSpecs={"Worker": {"replicas": workers}})
        names = [f"job-worker-{index}" for index in range(workers)]
        await jobs.wait_for_children("job", ["job-launcher", *names])
        await jobs.wait_for_counts("job", "Launcher", active=1)
        await jobs.wait_for_counts("job", "Worker", active=workers)
        await jobs.settle()
        config = await jobs.client.get(CONFIG_MAPS, "job-config", namespace=jobs.namespace)
        assert config["data"]["hostfile"] == "".join(f"{name} slots=4\n" for name in names)
        assert config["data"]["discover_hosts.sh"] == "\n".join(["#!/bin/sh", *(f"echo {name}:4" for name in names)])
        role = await jobs.client.get(ROLES, "job-launcher", namespace=jobs.namespace)
        assert role["rules"][1]["resourceNames"] == names


def environment_with_empty(pod: Object) -> dict[str, str]:
    """The API server leaves out empty values."""
    container = pod["spec"]["containers"][0]
    return environment({"spec": {"containers": [{"env": [{"value": "", **entry} for entry in container["env"]]}]}})
