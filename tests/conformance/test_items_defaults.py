"""Items 70 and 71: the kinds that `--enable-scheme` enables, and the defaults of fields."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.engine.planning import child, decide, env
from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import JobHarness, environment
from tests.support.objects.jobs import JobBuilder, template
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import PODS
from trainwright.operator.options import OperatorError, enabled_kinds

pytestmark = pytest.mark.timeout(90)

# 70: --enable-scheme


def test_item_70_enabled_schemes_as_parsed() -> None:
    assert enabled_kinds(()) == dict(KINDS)
    for spelling in ("PyTorchJob", "pytorchjob", "PYTORCHJOB"):
        assert enabled_kinds((spelling,)) == {"PyTorchJob": PYTORCH}
    assert enabled_kinds(("pytorchjob", "PyTorchJob")) == {"PyTorchJob": PYTORCH}
    with pytest.raises(OperatorError, match="scheme dummyjob is not supported yet"):
        enabled_kinds(("pytorchjob", "dummyjob"))


@pytest.mark.apiserver
async def test_item_70_enabled_schemes(control_plane: ControlPlane, client: Client, real_namespace: str) -> None:
    refused = await operator(control_plane, real_namespace, "--enable-scheme", "dummyjob")
    _, output = await refused.communicate()
    assert refused.returncode != 0
    assert b"scheme dummyjob is not supported yet" in output

    job = {**JobBuilder("job").master().raw(), "metadata": {"name": "job", "namespace": real_namespace}}
    await client.create(PYTORCH.resource, job)
    working = await operator(control_plane, real_namespace, "--enable-scheme", "pytorchjob")
    try:
        await eventually(lambda: client.list(PODS, namespace=real_namespace), lambda pods: pods.items)
    finally:
        working.terminate()
        await working.communicate()
    assert working.returncode == 0


async def operator(plane: ControlPlane, namespace: str, *arguments: str) -> asyncio.subprocess.Process:
    place = ("--kubeconfig", str(plane.kubeconfig), "--namespace", namespace)
    no_ports = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-server-port=0")
    command = (sys.executable, "-m", "trainwright", "operator", *place, *no_ports, *arguments)
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)


# 71: defaults

PORT = {"name": "pytorchjob-port", "containerPort": 23456}
ANOTHER = {"name": "metrics", "containerPort": 1234}
MOVED = {"name": "pytorchjob-port", "containerPort": 4711}


class Default(NamedTuple):
    replicas: Object
    """`pytorchReplicaSpecs`; roles without a template get one."""
    spec: Object
    """The rest of the spec."""
    pods: Mapping[str, Object]
    """By name without the job's name: the restart policy, the ports and some of the environment of each pod."""


def pod(policy: str = "OnFailure", ports: list[Object] | None = None, **given: str | None) -> Object:
    return {"policy": policy, "ports": [PORT] if ports is None else ports, "env": given}


def elastic(**policy: int) -> Object:
    return {"elasticPolicy": policy}


WORKER_OF_TWO: Object = {"Worker": {"replicas": 2}}
DEFAULTS: dict[str, Default] = {
    "upper-case": Default({"WORKER": {"replicas": 1}}, {}, {"worker-0": pod()}),
    "number": Default({"Master": {}, "Worker": {}}, {}, {"master-0": pod(WORLD_SIZE="2"), "worker-0": pod()}),
    "restart-policy": Default({"Worker": {"replicas": 1}}, {}, {"worker-0": pod("OnFailure")}),
    "own-policy": Default({"Worker": {"restartPolicy": "Always"}}, {}, {"worker-0": pod("Always")}),
    "exit-code": Default({"Worker": {"restartPolicy": "ExitCode"}}, {}, {"worker-0": pod("Never")}),
    "port": Default({"Worker": {"template": template()}}, {}, {"worker-0": pod(ports=[PORT])}),
    "own-port": Default({"Worker": {"template": template(ports=[MOVED])}}, {}, {"worker-0": pod(ports=[MOVED])}),
    "more-ports": Default(
        {"Worker": {"template": template(ports=[ANOTHER])}}, {}, {"worker-0": pod(ports=[ANOTHER, PORT])}
    ),
    "neither-bound": Default(
        WORKER_OF_TWO,
        elastic(),
        {f"worker-{index}": pod(PET_NNODES="2:2", PET_NPROC_PER_NODE="auto") for index in (0, 1)},
    ),
    "both-bounds": Default({"Worker": {}}, elastic(minReplicas=1, maxReplicas=4), {"worker-0": pod(PET_NNODES="1:4")}),
    "lower-bound": Default({"Worker": {}}, elastic(minReplicas=3), {"worker-0": pod(PET_NNODES="3:3")}),
    "upper-bound": Default({"Worker": {}}, elastic(maxReplicas=3), {"worker-0": pod(PET_NNODES="3:3")}),
    "processes": Default({"Worker": {}}, {}, {"worker-0": pod(PET_NPROC_PER_NODE="auto", PET_NNODES="1")}),
    "own-processes": Default({"Worker": {}}, {"nprocPerNode": "4"}, {"worker-0": pod(PET_NPROC_PER_NODE="4")}),
    "old-processes": Default({"Worker": {}}, elastic(nProcPerNode=2), {"worker-0": pod(PET_NPROC_PER_NODE="2")}),
}


@pytest.mark.parametrize("row", DEFAULTS)
def test_item_71_defaults_as_planned(row: str) -> None:
    planned = decide(builder(row).metadata(name="digits"))
    for name, expected in DEFAULTS[row].pods.items():
        made = child(planned, f"digits-{name}")
        assert seen(made, expected, dict(env(made))) == expected


@pytest.mark.apiserver
async def test_item_71_defaults(harness: JobHarness) -> None:
    written = {row: await harness.submit(builder(row)) for row in DEFAULTS}
    for row, default in DEFAULTS.items():
        await harness.wait_for_children(row, [f"{row}-{name}" for name in default.pods])
        pods = await harness.pods(row)
        for name, expected in default.pods.items():
            made = pods[f"{row}-{name}"]
            assert seen(made, expected, environment(made)) == expected
    await harness.settle()
    for row, before in written.items():
        stored = (await harness.job(row))["spec"]
        assert stored == before["spec"]
        assert stored == {**builder(row).raw()["spec"], "runPolicy": {"suspend": False}}


@pytest.mark.apiserver
async def test_item_71_the_default_of_clean_pod_policy(harness: RealClusterHarness) -> None:
    for job, policy in {"default": {}, "own": {"cleanPodPolicy": "All"}}.items():
        await harness.submit(JobBuilder(job).master().run_policy(**policy))
        await harness.wait_until_running(job)
        await harness.end(f"{job}-master-0", exit_code=0)
        await harness.wait_for_end(job, "Succeeded")
    await harness.wait_for_children("own", [])
    await harness.wait_for_children("default", ["default-master-0"])
    assert "cleanPodPolicy" not in (await harness.job("default"))["spec"]["runPolicy"]


def builder(row: str) -> JobBuilder:
    replicas = {role: {"template": template(), **spec} for role, spec in DEFAULTS[row].replicas.items()}
    return JobBuilder(row).spec(pytorchReplicaSpecs=replicas, **DEFAULTS[row].spec)


def seen(made: Object, expected: Object, given: Mapping[str, Any]) -> Object:
    """The pod in the form of the table, with the environment variables that the table names."""
    ports = [{key: port[key] for key in ("name", "containerPort")} for port in made["spec"]["containers"][0]["ports"]]
    return {
        "policy": made["spec"]["restartPolicy"],
        "ports": ports,
        "env": {name: given.get(name) for name in expected["env"]},
    }
