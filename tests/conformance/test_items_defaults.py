"""Items 22, 70 and 71: the kinds that `--enable-scheme` enables, and the defaults of fields."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.support.engine.planning import child, decide, env
from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import JobHarness, environment, submit
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder, pair, template
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.api.kinds.paddle import PADDLE
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import PODS
from trainwright.operator.options import OperatorError, enabled_kinds

# 70: --enable-scheme


def test_item_70_enabled_schemes_as_parsed() -> None:
    assert enabled_kinds(()) == dict(KINDS)
    for name, kind in KINDS.items():
        for spelling in (name, name.lower(), name.upper()):
            assert enabled_kinds((spelling,)) == {name: kind}
    assert enabled_kinds(("pytorchjob", "TFJob", "PyTorchJob")) == {"PyTorchJob": PYTORCH, "TFJob": TENSORFLOW}
    with pytest.raises(OperatorError, match="scheme dummyjob is not supported yet"):
        enabled_kinds(("pytorchjob", "dummyjob"))


@pytest.mark.apiserver
async def test_item_70_enabled_schemes(control_plane: ControlPlane, client: Client, real_namespace: str) -> None:
    refused = await operator(control_plane, real_namespace, "--enable-scheme", "dummyjob")
    _, output = await refused.communicate()
    assert refused.returncode != 0
    assert b"scheme dummyjob is not supported yet" in output

    for kind in KINDS.values():
        await submit(client, pair(kind.framework, kind).metadata(namespace=real_namespace))
    enabled = {PADDLE.name, TENSORFLOW.name}
    working = await operator(control_plane, real_namespace, *(f"--enable-scheme={name}" for name in enabled))
    try:
        pods = await eventually(lambda: client.list(PODS, namespace=real_namespace), lambda pods: len(pods.items) == 4)
    finally:
        working.terminate()
        await working.communicate()
    assert working.returncode == 0
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods.items} == enabled


async def operator(plane: ControlPlane, namespace: str, *arguments: str) -> asyncio.subprocess.Process:
    place = ("--kubeconfig", str(plane.kubeconfig), "--namespace", namespace)
    no_ports = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-server-port=0")
    command = (sys.executable, "-m", "trainwright", "operator", *place, *no_ports, *arguments)
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)


# 71: defaults

PORT = {"name": "pytorchjob-port", "containerPort": 23456}
ANOTHER = {"name": "metrics", "containerPort": 1234}


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
    "number": Default({"Master": {}, "Worker": {}}, {}, {"master-0": pod(WORLD_SIZE="2"), "worker-0": pod()}),
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


class KindDefaults(NamedTuple):
    policy: str
    port: Object


OF_KIND = {
    "PyTorchJob": KindDefaults("OnFailure", PORT),
    "TFJob": KindDefaults("Never", {"name": "tfjob-port", "containerPort": 2222}),
    "XGBoostJob": KindDefaults("Never", {"name": "xgboostjob-port", "containerPort": 9999}),
    "PaddleJob": KindDefaults("OnFailure", {"name": "master", "containerPort": 36543}),
    "JAXJob": KindDefaults("Never", {"name": "jaxjob-port", "containerPort": 6666}),
}
POLICIES = {"Always": "Always", "OnFailure": "OnFailure", "Never": "Never", "ExitCode": "Never"}
"""A restart policy of a role, and that of its pods."""


@pytest.mark.apiserver
async def test_items_22_71_defaults_of_all_kinds(harness: JobHarness) -> None:
    """The role Worker in capitals: the number of its pods, their restart policies and ports. An XGBoostJob needs a
    Master."""
    for name, default in OF_KIND.items():
        kind = KINDS[name]
        moved = {**default.port, "containerPort": 4711}
        rows: dict[str, tuple[Object, Object]] = {
            "default": ({}, pod(default.policy, [default.port])),
            "own-port": ({"template": template(name=kind.container, ports=[moved])}, pod(default.policy, [moved])),
            "more-ports": (
                {"template": template(name=kind.container, ports=[ANOTHER])},
                pod(default.policy, [ANOTHER, default.port]),
            ),
            **{
                f"policy-{policy.lower()}": ({"restartPolicy": policy}, pod(of_pods, [default.port]))
                for policy, of_pods in POLICIES.items()
            },
        }
        jobs = harness.of(kind)
        masters = ["Master"] if name == "XGBoostJob" else []
        for row, (spec, _) in rows.items():
            worker = {"WORKER": {"template": template(name=kind.container), **spec}}
            builder = JobBuilder(f"{kind.framework}-{row}", kind=kind)
            for role in masters:
                builder.replica(role)
            builder.object["spec"][kind.replicas_field].update(worker)
            await jobs.submit(builder)
        for row, (_, expected) in rows.items():
            job = f"{kind.framework}-{row}"
            await jobs.wait_for_children(job, [f"{job}-{role.lower()}-0" for role in (*masters, "Worker")])
            assert seen((await jobs.pods(job))[f"{job}-worker-0"], expected, {}) == expected, job
            assert "restartPolicy" not in str((await jobs.job(job))["spec"]) or row.startswith("policy")


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
