"""The Go training-operator v1.9.4 and ours live through the same jobs on one real API server: every difference is one
that docs/compatibility.md explains."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.cluster.go_operator import TUNED, running_go_operator
from tests.support.cluster.podgroups import serve_pod_groups
from tests.support.differential.cases import Case
from tests.support.differential.explanations import (
    DIVERGENCES,
    EXPLANATIONS,
    GANG_DIVERGENCES,
    GANG_EXPLANATIONS,
    Comparison,
    Divergence,
    Explanation,
    Judge,
    rows_of_the_page,
)
from tests.support.differential.gang_themes import GANGS
from tests.support.differential.generated_cases import generated_cases
from tests.support.differential.lockstep import Side, run_in_lockstep
from tests.support.differential.snapshots import Snapshot
from tests.support.harness.running_operator import running_operator
from trainwright.engine import Settings
from trainwright.engine.settings import Gang
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.operator.setup.capabilities import survey

ALL_OF_THEM = os.environ.get("HYPOTHESIS_PROFILE") == "all"
CASES, GANG_CASES = (92, 16) if ALL_OF_THEM else (12, 2)
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))


@pytest.mark.apiserver
@pytest.mark.timeout(600)
async def test_every_difference_from_the_go_operator_is_a_row_of_the_page(
    control_plane: ControlPlane, real_namespace: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    cases, judge = generated_cases(CASES, seed=SEED), Judge(DIVERGENCES, EXPLANATIONS)
    await live_and_judge(cases, judge, control_plane, real_namespace, tmp_path)

    tell(f"differential: {judge.summary}; rows that these jobs did not show: {len(judge.not_seen)}")
    if ALL_OF_THEM:
        for row, times in judge.seen.most_common():
            tell(f"  {times:5} {row}")
    assert not judge.unexplained, "\n".join(judge.unexplained)
    if ALL_OF_THEM:
        assert judge.not_seen == []


@pytest.mark.apiserver
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheduler", ["scheduler-plugins", "volcano"])
async def test_every_difference_in_gangs_is_a_row_of_the_page(
    control_plane: ControlPlane, real_namespace: str, tmp_path: Path, tell: Callable[[str], None], scheduler: str
) -> None:
    cases = generated_cases(GANG_CASES, seed=SEED, themes=GANGS)
    judge = Judge(GANG_DIVERGENCES, [*GANG_EXPLANATIONS, *EXPLANATIONS])
    await live_and_judge(cases, judge, control_plane, real_namespace, tmp_path, gang=Gang(scheduler))

    tell(f"differential, {scheduler}: {judge.summary}")
    assert not judge.unexplained, "\n".join(judge.unexplained)


async def live_and_judge(
    cases: Sequence[Case],
    judge: Judge,
    control_plane: ControlPlane,
    namespace: str,
    directory: Path,
    gang: Gang | None = None,
) -> None:
    async with Client(control_plane.config) as client:
        if gang:
            await serve_pod_groups(client, gang)
        flags = [f"--namespace={namespace}-go", *([f"--gang-scheduler-name={gang.name}"] if gang else []), *TUNED]
        surroundings = await survey(client, Settings(gang=gang))
        with running_go_operator(control_plane, directory=directory, flags=flags):
            async with (
                Side(client, f"{namespace}-go", gang=gang).open() as go,
                Side(client, f"{namespace}-ours", gang=gang).open() as ours,
                running_operator(
                    client,
                    namespace=ours.namespace,
                    settings=surroundings.settings,
                    outlook=surroundings.outlook,
                ),
            ):
                async for step, theirs, own in run_in_lockstep(cases, go, ours):
                    for case in cases:
                        if case.name in theirs:
                            judge.look(step, Comparison(case, theirs[case.name], own[case.name]))


@pytest.mark.parametrize(
    "reason", [*DIVERGENCES, *EXPLANATIONS, *GANG_DIVERGENCES, *GANG_EXPLANATIONS], ids=lambda reason: reason.row
)
def test_each_explanation_quotes_one_row_of_the_page(reason: Explanation | Divergence) -> None:
    assert len([row for row in rows_of_the_page() if row.startswith(reason.row)]) == 1


def test_a_larger_number_of_cases_begins_with_the_same_ones() -> None:
    assert generated_cases(60, seed=SEED)[:12] == generated_cases(12, seed=SEED)
    assert generated_cases(12, seed=SEED) != generated_cases(12, seed=SEED + 1)


JOB: Object = {"spec": {"pytorchReplicaSpecs": {}}, "status": {}}
EMPTY = Snapshot(job=JOB, pods={}, services={}, companions={}, events=[], told=0)


@pytest.mark.parametrize(
    "ours",
    [
        replace(EMPTY, job={**JOB, "status": {"conditions": [["Created", "True", "PyTorchJobCreated", "is created"]]}}),
        replace(EMPTY, job=None),
        replace(EMPTY, pods={"worker-0": {"phase": "Running"}}),
        replace(EMPTY, services={"worker-0": {"spec": {"ports": []}}}),
        replace(EMPTY, companions={"HorizontalPodAutoscaler": {"spec": {"minReplicas": 1}}}),
        replace(EMPTY, events=[("Normal", "SuccessfulCreatePod", "Created pod: case-00-worker-0")]),
    ],
    ids=["conditions", "job", "pods", "services", "companions", "events"],
)
def test_a_difference_that_no_row_covers_is_held_against_us(ours: Snapshot) -> None:
    judge = Judge(DIVERGENCES, EXPLANATIONS)
    judge.look(0, Comparison(generated_cases(1, seed=SEED)[0], EMPTY, ours))
    assert len(judge.unexplained) == 1
