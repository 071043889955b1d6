"""The Go training-operator v1.9.4 and ours run the same jobs on one real API server: docs/compatibility.md explains
every difference."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.cluster.go_operator import TUNED, running_go_operator
from tests.support.cluster.podgroups import serve_pod_groups
from tests.support.differential.case_builder import generated_cases
from tests.support.differential.cases import Case
from tests.support.differential.edge_case_themes import EDGE_CASES
from tests.support.differential.explanations import (
    DIVERGENCES,
    EXPLANATIONS,
    GANG_DIVERGENCES,
    GANG_EXPLANATIONS,
    Comparison,
    DifferenceReport,
    Divergence,
    Explanation,
    rows_of_the_page,
)
from tests.support.differential.gang_themes import GANGS
from tests.support.differential.lifecycle_themes import LIFECYCLES
from tests.support.differential.lockstep import Side, run_in_lockstep
from tests.support.differential.snapshots import Snapshot
from tests.support.harness.running_operator import running_operator
from trainwright.engine import Settings
from trainwright.engine.settings import Gang
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.operator.setup.capabilities import discover_capabilities

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "all"
THEMES = {**LIFECYCLES, **EDGE_CASES}
CASES, GANG_CASES = (92, 16) if THOROUGH else (12, 2)
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))


@pytest.mark.apiserver
@pytest.mark.timeout(600)
async def test_every_difference_from_the_go_operator_is_a_row_of_the_page(
    control_plane: ControlPlane, real_namespace: str, tmp_path: Path, add_summary: Callable[[str], None]
) -> None:
    cases, report = generated_cases(CASES, seed=SEED, themes=THEMES), DifferenceReport(DIVERGENCES, EXPLANATIONS)
    await run_and_compare(cases, report, control_plane, real_namespace, tmp_path)

    add_summary(f"differential: {report.summary}; rows that these jobs did not show: {len(report.not_seen)}")
    if THOROUGH:
        for row, times in report.seen.most_common():
            add_summary(f"  {times:5} {row}")
    assert not report.unexplained, "\n".join(report.unexplained)
    if THOROUGH:
        assert report.not_seen == []


@pytest.mark.apiserver
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scheduler", ["scheduler-plugins", "volcano"])
async def test_every_difference_with_a_gang_scheduler_is_a_row_of_the_page(
    control_plane: ControlPlane, real_namespace: str, tmp_path: Path, add_summary: Callable[[str], None], scheduler: str
) -> None:
    cases = generated_cases(GANG_CASES, seed=SEED, themes=GANGS)
    report = DifferenceReport(GANG_DIVERGENCES, [*GANG_EXPLANATIONS, *EXPLANATIONS])
    await run_and_compare(cases, report, control_plane, real_namespace, tmp_path, gang=Gang(scheduler))

    add_summary(f"differential, {scheduler}: {report.summary}")
    assert not report.unexplained, "\n".join(report.unexplained)


async def run_and_compare(
    cases: Sequence[Case],
    report: DifferenceReport,
    control_plane: ControlPlane,
    namespace: str,
    directory: Path,
    gang: Gang | None = None,
) -> None:
    async with Client(control_plane.config) as client:
        if gang:
            await serve_pod_groups(client, gang)
        flags = [f"--namespace={namespace}-go", *([f"--gang-scheduler-name={gang.name}"] if gang else []), *TUNED]
        capabilities = await discover_capabilities(client, Settings(gang=gang))
        with running_go_operator(control_plane, directory=directory, flags=flags):
            async with (
                Side(client, f"{namespace}-go", gang=gang).open() as go,
                Side(client, f"{namespace}-ours", gang=gang).open() as ours,
                running_operator(
                    client,
                    namespace=ours.namespace,
                    settings=capabilities.settings,
                    cluster_resources=capabilities.cluster_resources,
                ),
            ):
                async for step, theirs, own in run_in_lockstep(cases, go, ours):
                    for case in cases:
                        if case.name in theirs:
                            report.compare(step, Comparison(case, theirs[case.name], own[case.name]))


@pytest.mark.parametrize(
    "explanation",
    [*DIVERGENCES, *EXPLANATIONS, *GANG_DIVERGENCES, *GANG_EXPLANATIONS],
    ids=lambda explanation: explanation.row,
)
def test_each_explanation_quotes_one_row_of_the_page(explanation: Explanation | Divergence) -> None:
    assert len([row for row in rows_of_the_page() if row.startswith(explanation.row)]) == 1


def test_a_larger_number_of_cases_begins_with_the_same_ones() -> None:
    cases = generated_cases(12, seed=SEED, themes=THEMES)
    assert generated_cases(60, seed=SEED, themes=THEMES)[:12] == cases
    assert generated_cases(12, seed=SEED + 1, themes=THEMES) != cases


JOB: Object = {"spec": {"pytorchReplicaSpecs": {}}, "status": {}}
EMPTY = Snapshot(job=JOB, pods={}, services={}, companions={}, events=[], event_count=0)


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
def test_a_difference_that_no_row_covers_is_unexplained(ours: Snapshot) -> None:
    report = DifferenceReport(DIVERGENCES, EXPLANATIONS)
    report.compare(0, Comparison(generated_cases(1, seed=SEED, themes=THEMES)[0], EMPTY, ours))
    assert len(report.unexplained) == 1
