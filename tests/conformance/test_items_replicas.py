"""Items 62, 64, 65 and 66: whose job it is, which pods make it up, and what their failures do to it."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.support.cluster.stages import PlayedStage
from tests.support.differential.scenes import Scene, owner_reference
from tests.support.engine.planning import STARTED, all_services, conditions, created, decide, deleted
from tests.support.objects import verdicts
from tests.support.objects.jobs import JobBuilder, PodBuilder, template
from trainwright.api.kinds import PYTORCH
from trainwright.objects import Object
from trainwright.objects.resources import PODS, SERVICES

pytestmark = pytest.mark.timeout(90)

# 62: who manages the job

MANAGERS: Mapping[str, tuple[str | None, bool]] = {
    "nobody-named": (None, True),
    "empty": ("", False),
    "ours": ("kubeflow.org/training-operator", True),
    "multikueue": ("kueue.x-k8s.io/multikueue", False),
    "another": ("other-job-controller", False),
}
"""What managedBy says, and whether the job is ours to run."""


@pytest.mark.parametrize("row", MANAGERS)
def test_item_62_managed_by_as_planned(row: str) -> None:
    manager, ours = MANAGERS[row]
    builder = JobBuilder().master()
    planned = decide(builder if manager is None else builder.run_policy(managedBy=manager))
    assert planned.empty is not ours


@pytest.mark.apiserver
async def test_item_62_managed_by(scene: Scene) -> None:
    for name, (manager, _) in MANAGERS.items():
        builder = JobBuilder(name).master()
        await scene.submit(builder if manager is None else builder.run_policy(managedBy=manager))
    await scene.quiet()
    for name, (_, ours) in MANAGERS.items():
        await scene.has(name, [f"{name}-master-0"] if ours else [])
        assert bool(await scene.status(name)) is ours
        assert bool(await scene.events(name)) is ours


# 64: which pods there shall be

INDEX = "training.kubeflow.org/replica-index"


class Slots(NamedTuple):
    present: list[int]
    replicas: int
    missing: list[int]
    surplus: list[int]


SLOTS = [
    Slots([0, 1, 2], 3, [], []),
    Slots([0, 1, 2], 4, [3], []),
    Slots([0, 1, 2], 2, [], [2]),
    Slots([0, 1, 2, 4], 3, [], [4]),
    # Upstream creates and deletes pod 0 for ever: the row on `Worker.replicas: 0` of docs/compatibility.md.
    Slots([], 0, [], []),
]


@pytest.mark.parametrize("row", SLOTS)
def test_item_64_missing_and_surplus_pods_as_planned(row: Slots) -> None:
    builder = JobBuilder().master().workers(row.replicas).status(STARTED)
    pods = [PodBuilder("Worker", index).running() for index in row.present]
    planned = decide(builder, PodBuilder("Master").running(), *pods, services=all_services(5))
    assert created(planned) == [f"digits-worker-{index}" for index in row.missing]
    assert deleted(planned) == [f"digits-worker-{index}" for index in row.surplus]


@pytest.mark.apiserver
async def test_item_64_missing_and_surplus_pods(scene: Scene) -> None:
    """Names are `<job>-<role>-<index>`; a pod beyond the last index goes, whoever asked for it."""
    job = await scene.submit(JobBuilder("scaled").master().workers(3))
    await scene.running("scaled")
    for count in (4, 2, 0, 3):
        await scene.client.patch(
            PYTORCH.resource, "scaled", {"spec": {"replicas": count}}, namespace=scene.namespace, subresource="scale"
        )
        workers = [f"scaled-worker-{index}" for index in range(count)]
        await scene.has("scaled", ["scaled-master-0", *workers])

    beyond = {
        "metadata": {
            "name": "scaled-worker-4",
            "namespace": scene.namespace,
            "labels": {**(await scene.pods("scaled"))["scaled-worker-0"]["metadata"]["labels"], INDEX: "4"},
            "ownerReferences": [owner_reference(job)],
        }
    }
    await scene.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **beyond, **template()})
    ports = {"clusterIP": "None", "ports": [{"port": 1}]}
    await scene.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **beyond, "spec": ports})
    await scene.hears("scaled", ("Normal", "SuccessfulDeletePod", "Deleted pod: scaled-worker-4"))
    await scene.has("scaled", ["scaled-master-0", *workers])


@pytest.mark.apiserver
async def test_item_64_pods_are_counted_by_role_and_phase(scene: PlayedStage) -> None:
    """Upstream counts a running pod that somebody deletes as failed; with us it is neither success nor failure: the
    row `Deleting a running pod by hand` of docs/compatibility.md."""
    held = template()
    held["metadata"] = {"finalizers": ["example.com/held"]}
    await scene.submit(JobBuilder("counted").master().workers(4, policy="Never", pod=held))
    await scene.running("counted")
    await scene.end("counted-worker-1", exit_code=0)
    await scene.client.delete(PODS, "counted-worker-2", namespace=scene.namespace)
    counted = await scene.counts("counted", "Worker", active=2)
    assert _numbers(counted, "Master") == (1, 0, 0)
    assert _numbers(counted, "Worker") == (2, 1, 0)
    await scene.quiet()
    assert await scene.conditions("counted") == [verdicts.created("counted"), verdicts.running("counted")]

    await scene.end("counted-worker-3", exit_code=1)
    failed = await scene.shows(
        "counted",
        verdicts.created("counted"),
        verdicts.running("counted", "False"),
        verdicts.replicas_failed("counted", "Worker"),
    )
    assert _numbers(failed["status"], "Worker") == (1, 1, 1)
    for name in await scene.pods("counted"):
        await scene.client.patch(PODS, name, {"metadata": {"finalizers": None}}, namespace=scene.namespace)


# 65: the sequence of conditions


@pytest.mark.apiserver
async def test_item_65_the_sequence_of_conditions(scene: PlayedStage) -> None:
    job = await scene.submit(JobBuilder("job").master().workers(1, policy="ExitCode"))
    async with scene.history(job) as history:
        await scene.running("job")
        first = (await scene.pods("job"))["job-worker-0"]
        await scene.end("job-worker-0", exit_code=137)
        await scene.replaced("job", first)
        await scene.running("job")
        await scene.end("job-worker-0", exit_code=1)
        await scene.ends("job", "Failed")
    assert history == [
        [verdicts.created("job")],
        [verdicts.created("job"), verdicts.running("job")],
        [verdicts.created("job"), verdicts.restarting("job", "Worker")],
        [verdicts.created("job"), verdicts.running("job")],
        [verdicts.created("job"), verdicts.running("job", "False"), verdicts.permanent_exit_code("job", "Worker")],
    ]


# 66: which exit codes are worth another try

EXIT_CODES = {1: False, 2: False, 3: False, 127: False, 128: True, 130: True, 138: True}


@pytest.mark.parametrize(("code", "retried"), EXIT_CODES.items())
def test_item_66_retryable_exit_codes_as_planned(code: int, retried: bool) -> None:
    builder = JobBuilder().master().workers(1, policy="ExitCode").status(STARTED)
    pods = (PodBuilder("Master").running(), PodBuilder("Worker").failed(code))
    planned = decide(builder, *pods, services=all_services(1))
    assert conditions(planned)[-1][0] == ("Restarting" if retried else "Failed")
    assert deleted(planned) == (["digits-worker-0"] if retried else [])


@pytest.mark.apiserver
async def test_item_66_retryable_exit_codes(scene: PlayedStage) -> None:
    first: dict[int, Object] = {}
    for code in EXIT_CODES:
        await scene.submit(JobBuilder(f"code-{code}").master().workers(1, policy="ExitCode"))
    for code in EXIT_CODES:
        await scene.running(f"code-{code}")
        first[code] = (await scene.pods(f"code-{code}"))[f"code-{code}-worker-0"]
        await scene.end(f"code-{code}-worker-0", exit_code=code)
    for code, retried in EXIT_CODES.items():
        job, worker = f"code-{code}", f"code-{code}-worker-0"
        if retried:
            await scene.replaced(job, first[code])
            await scene.running(job)
            told = ("Warning", "PyTorchJobRestarting", f"job {job} is restarting because Worker replica(s) failed.")
            shown = [verdicts.running(job)]
        else:
            told = ("Warning", "PyTorchJobFailed", f'job "{job}" is failing because "Worker" replica(s) failed.')
            shown = [verdicts.running(job, "False"), verdicts.permanent_exit_code(job, "Worker")]
        await scene.shows(job, verdicts.created(job), *shown)
        exited = ("Normal", "ExitedWithCode", f"Pod: {scene.namespace}.{worker} exited with code {code}")
        await scene.hears(job, exited, told)
    await scene.quiet()
    for code in (code for code, retried in EXIT_CODES.items() if not retried):
        kept = (await scene.pods(f"code-{code}"))[f"code-{code}-worker-0"]
        assert kept["metadata"]["uid"] == first[code]["metadata"]["uid"]


# Helpers


def _numbers(status: Object, role: str) -> tuple[int, int, int]:
    """Active, succeeded and failed."""
    counts = status.get("replicaStatuses", {}).get(role, {})
    return counts.get("active", 0), counts.get("succeeded", 0), counts.get("failed", 0)
