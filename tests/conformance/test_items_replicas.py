"""Items 23, 24, 62, 64, 65 and 66: the manager of a job, its pods, and what their failures do to it."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.support.engine.planning import STARTED, all_services, conditions, created, decide, deleted
from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import JobHarness, conditions_of, owner_reference
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder, PodBuilder, pair, pair_pods, template
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.objects import Object
from trainwright.objects.resources import PODS, SERVICES

# 62: the manager of the job

MANAGERS: Mapping[str, tuple[str | None, bool]] = {
    "no-manager": (None, True),
    "empty": ("", False),
    "ours": ("kubeflow.org/training-operator", True),
    "multikueue": ("kueue.x-k8s.io/multikueue", False),
    "another": ("other-job-controller", False),
}
"""The value of managedBy, and whether our operator runs the job."""


@pytest.mark.parametrize("row", MANAGERS)
def test_item_62_managed_by_as_planned(row: str) -> None:
    manager, ours = MANAGERS[row]
    builder = JobBuilder().master()
    planned = decide(builder if manager is None else builder.run_policy(managedBy=manager))
    assert planned.empty is not ours


@pytest.mark.apiserver
async def test_item_62_managed_by(harness: JobHarness) -> None:
    rows = [(harness.of(kind), f"{kind.framework}-{row}", row) for kind in KINDS.values() for row in MANAGERS]
    for jobs, name, row in rows:
        builder, manager = pair(name, jobs.kind), MANAGERS[row][0]
        await jobs.submit(builder if manager is None else builder.run_policy(managedBy=manager))
    await harness.settle()
    for jobs, name, row in rows:
        ours = MANAGERS[row][1]
        await jobs.wait_for_children(name, pair_pods(name, jobs.kind) if ours else [])
        assert bool(await jobs.status(name)) is ours
        assert bool(await jobs.events(name)) is ours


# 64: missing and surplus pods

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
@pytest.mark.parametrize("name", ["PyTorchJob", "PaddleJob", "JAXJob"])
async def test_item_64_missing_and_surplus_pods(harness: JobHarness, name: str) -> None:
    """Names are `<job>-<role>-<index>`. A pod beyond the last index is deleted, also one that a user has created. These
    are the kinds with a scale subresource."""
    kind = KINDS[name]
    harness = harness.of(kind)
    masters = [] if kind.roles[0].name == "Worker" else ["scaled-master-0"]
    job = await harness.submit(pair("scaled", kind).workers(3))
    await harness.wait_until_running("scaled")
    for count in (4, 2, 0, 3):
        await harness.client.patch(
            kind.resource, "scaled", {"spec": {"replicas": count}}, namespace=harness.namespace, subresource="scale"
        )
        workers = [f"scaled-worker-{index}" for index in range(count)]
        await harness.wait_for_children("scaled", [*masters, *workers])
    selector = (
        f"training.kubeflow.org/job-name=scaled,training.kubeflow.org/operator-name={name.lower()}-controller,"
        "training.kubeflow.org/replica-type=worker"
    )
    scale = await eventually(
        lambda: harness.client.get(kind.resource, "scaled", namespace=harness.namespace, subresource="scale"),
        lambda seen: seen["status"]["replicas"] == 3,
    )
    assert scale["status"]["selector"] == selector

    beyond = {
        "metadata": {
            "name": "scaled-worker-4",
            "namespace": harness.namespace,
            "labels": {**(await harness.pods("scaled"))["scaled-worker-0"]["metadata"]["labels"], INDEX: "4"},
            "ownerReferences": [owner_reference(job)],
        }
    }
    await harness.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **beyond, **template(name=kind.container)})
    ports = {"clusterIP": "None", "ports": [{"port": 1}]}
    await harness.client.create(SERVICES, {"apiVersion": "v1", "kind": "Service", **beyond, "spec": ports})
    await harness.wait_for_events("scaled", ("Normal", "SuccessfulDeletePod", "Deleted pod: scaled-worker-4"))
    await harness.wait_for_children("scaled", [*masters, *workers])


@pytest.mark.apiserver
async def test_item_64_pods_are_counted_by_role_and_phase(harness: RealClusterHarness) -> None:
    """Upstream counts a running pod that a user deletes as failed; ours counts it as neither succeeded nor failed: the
    row `Deleting a running pod by hand` of docs/compatibility.md."""
    held = template()
    held["metadata"] = {"finalizers": ["example.com/held"]}
    await harness.submit(JobBuilder("counted").master().workers(4, policy="Never", pod=held))
    await harness.wait_until_running("counted")
    await harness.end("counted-worker-1", exit_code=0)
    await harness.client.delete(PODS, "counted-worker-2", namespace=harness.namespace)
    counted = await harness.wait_for_counts("counted", "Worker", active=2)
    assert _numbers(counted, "Master") == (1, 0, 0)
    assert _numbers(counted, "Worker") == (2, 1, 0)
    await harness.settle()
    assert await harness.conditions("counted") == [upstream.created("counted"), upstream.running("counted")]

    await harness.end("counted-worker-3", exit_code=1)
    failed = await harness.wait_for_conditions(
        "counted",
        upstream.created("counted"),
        upstream.running("counted", "False"),
        upstream.replicas_failed("counted", "Worker"),
    )
    assert _numbers(failed["status"], "Worker") == (1, 1, 1)
    for name in await harness.pods("counted"):
        await harness.client.patch(PODS, name, {"metadata": {"finalizers": None}}, namespace=harness.namespace)


# 65: the sequence of conditions


@pytest.mark.apiserver
async def test_item_65_the_sequence_of_conditions(harness: RealClusterHarness) -> None:
    job = await harness.submit(JobBuilder("job").master().workers(1, policy="ExitCode"))
    async with harness.history(job) as history:
        await harness.wait_until_running("job")
        first = (await harness.pods("job"))["job-worker-0"]
        await harness.end("job-worker-0", exit_code=137)
        await harness.wait_for_replacement("job", first)
        await harness.wait_until_running("job")
        await harness.end("job-worker-0", exit_code=1)
        await harness.wait_for_end("job", "Failed")
    assert history == [
        [upstream.created("job")],
        [upstream.created("job"), upstream.running("job")],
        [upstream.created("job"), upstream.restarting("job", "Worker")],
        [upstream.created("job"), upstream.running("job")],
        [upstream.created("job"), upstream.running("job", "False"), upstream.permanent_exit_code("job", "Worker")],
    ]


# 66: retryable exit codes

EXIT_CODES = {1: False, 2: False, 3: False, 127: False, 128: True, 130: True, 138: True}


@pytest.mark.parametrize(("code", "retried"), EXIT_CODES.items())
def test_items_23_24_66_retryable_exit_codes_as_planned(code: int, retried: bool) -> None:
    builder = JobBuilder().master().workers(1, policy="ExitCode").status(STARTED)
    pods = (PodBuilder("Master").running(), PodBuilder("Worker").failed(code))
    planned = decide(builder, *pods, services=all_services(1))
    assert conditions(planned)[-1][0] == ("Restarting" if retried else "Failed")
    assert deleted(planned) == (["digits-worker-0"] if retried else [])


@pytest.mark.apiserver
@pytest.mark.parametrize("name", KINDS)
async def test_items_23_24_66_retryable_exit_codes(harness: RealClusterHarness, name: str) -> None:
    kind, first = KINDS[name], dict[int, Object]()
    jobs, codes = harness.of(kind), EXIT_CODES if kind is PYTORCH else {1: False, 130: True}
    for code in codes:
        await jobs.submit(pair(f"code-{code}", kind, policy="ExitCode"))
    for code in codes:
        await jobs.wait_until_running(f"code-{code}")
        _, worker = pair_pods(f"code-{code}", kind)
        first[code] = (await jobs.pods(f"code-{code}"))[worker]
        await jobs.end(worker, exit_code=code)
    for code, retried in codes.items():
        job, (_, worker) = f"code-{code}", pair_pods(f"code-{code}", kind)
        if retried:
            await jobs.wait_for_replacement(job, first[code])
            await jobs.wait_until_running(job)
            event = ("Warning", f"{name}Restarting", f"job {job} is restarting because Worker replica(s) failed.")
            shown = [("Running", "True", f"{name}Running")]
        else:
            event = ("Warning", f"{name}Failed", f'job "{job}" is failing because "Worker" replica(s) failed.')
            shown = [("Running", "False", f"{name}Running"), ("Failed", "True", f"{name}Failed")]
            failed = await jobs.wait_for_end(job, "Failed")
            assert conditions_of(failed)[-1] == upstream.permanent_exit_code(job, "Worker", name)
            assert failed["status"]["completionTime"]
        seen = await eventually(lambda: jobs.conditions(job), lambda seen: len(seen) == 1 + len(shown))  # noqa: B023
        assert [condition[:3] for condition in seen[1:]] == shown
        exited = ("Normal", "ExitedWithCode", f"Pod: {jobs.namespace}.{worker} exited with code {code}")
        await jobs.wait_for_events(job, exited, event)
    await jobs.settle()
    for code in (code for code, retried in codes.items() if not retried):
        kept = (await jobs.pods(f"code-{code}"))[first[code]["metadata"]["name"]]
        assert kept["metadata"]["uid"] == first[code]["metadata"]["uid"]


# Helpers


def _numbers(status: Object, role: str) -> tuple[int, int, int]:
    """Active, succeeded and failed."""
    counts = status.get("replicaStatuses", {}).get(role, {})
    return counts.get("active", 0), counts.get("succeeded", 0), counts.get("failed", 0)
