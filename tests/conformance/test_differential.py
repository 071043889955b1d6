"""The Go training-operator v1.9.4 and ours run the same jobs on one real API server: docs/compatibility.md explains
every difference."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.differential.case_builder import generated_cases
from tests.support.differential.cases import Case
from tests.support.differential.comparisons import Comparison, Divergence, Explanation
from tests.support.differential.explanations import (
    DIVERGENCES,
    EXPLANATIONS,
    GANG_DIVERGENCES,
    GANG_EXPLANATIONS,
    DifferenceReport,
    not_seen,
    rows_of_the_page,
)
from tests.support.differential.lockstep import Side, run_in_lockstep
from tests.support.differential.snapshots import Snapshot
from tests.support.differential.themes import gang_themes_of, themes_of
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.go_operator import TUNED, running_go_operator
from tests.support.kubernetes.podgroups import serve_pod_groups
from tests.support.thoroughness import THOROUGH
from trainwright.api.kinds import KINDS, Kind
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.operator.reconcile.status_write_pacer import StatusWritePacer
from trainwright.operator.setup.capabilities import discover_capabilities

SAMPLE = {"PyTorchJob": 10, "TFJob": 10, "XGBoostJob": 6, "PaddleJob": 6, "JAXJob": 6, "MPIJob": 10}
"""Number of cases by kind; the thorough run has every theme."""
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))


BATCHES = {name: [kind] for name, kind in KINDS.items()} if THOROUGH else {"sample": [*KINDS.values()]}
"""The kinds whose cases run at the same time: a sample of all kinds, else one kind after the other, because the Go
operator's recorder drops events when many jobs start at once. `-k MPIJob` chooses a kind of the thorough run."""


@pytest.fixture(scope="module")
def seen_rows() -> dict[str, Counter[str]]:
    """By batch, how often each row of the page explained a difference."""
    return {}


@pytest.mark.apiserver
@pytest.mark.timeout(900)
@pytest.mark.parametrize("batch", BATCHES)
async def test_every_difference_from_the_go_operator_is_a_row_of_the_page(
    control_plane: ControlPlane,
    real_namespace: str,
    tmp_path: Path,
    add_summary: Callable[[str], None],
    seen_rows: dict[str, Counter[str]],
    batch: str,
) -> None:
    report = DifferenceReport(DIVERGENCES, EXPLANATIONS)
    cases = [case for kind in BATCHES[batch] for case in cases_of(kind)]
    await run_and_compare(cases, report, control_plane, real_namespace, tmp_path)

    add_summary(f"differential, seed {SEED}: {report.summary}")
    assert not report.unexplained, "\n".join(report.unexplained)
    seen_rows[batch] = report.seen
    if THOROUGH and seen_rows.keys() == BATCHES.keys():
        assert_every_row_was_seen(sum(seen_rows.values(), Counter()), add_summary)


def assert_every_row_was_seen(seen: Counter[str], add_summary: Callable[[str], None]) -> None:
    for row, times in seen.most_common():
        add_summary(f"  {times:5} {row}")
    assert not_seen([*DIVERGENCES, *EXPLANATIONS], seen) == []


@pytest.mark.apiserver
@pytest.mark.timeout(600)
@pytest.mark.thorough("scheduler-plugins")
@pytest.mark.parametrize("scheduler", ["scheduler-plugins", "volcano"])
async def test_every_difference_with_a_gang_scheduler_is_a_row_of_the_page(
    control_plane: ControlPlane, real_namespace: str, tmp_path: Path, add_summary: Callable[[str], None], scheduler: str
) -> None:
    report = DifferenceReport(GANG_DIVERGENCES, [*GANG_EXPLANATIONS, *EXPLANATIONS])
    cases = [case for kind in KINDS.values() for case in gang_cases_of(kind)]
    await run_and_compare(cases, report, control_plane, real_namespace, tmp_path, gang=GangScheduler(scheduler))

    add_summary(f"differential, {scheduler}, seed {SEED}: {report.summary}")
    assert not report.unexplained, "\n".join(report.unexplained)


def cases_of(kind: Kind) -> list[Case]:
    themes = themes_of(kind)
    return generated_cases(kind, len(themes) if THOROUGH else SAMPLE[kind.name], seed=SEED, themes=themes)


def gang_cases_of(kind: Kind) -> list[Case]:
    themes = gang_themes_of(kind)
    return generated_cases(kind, len(themes) if THOROUGH else 1, seed=SEED, themes=themes)


async def run_and_compare(
    cases: Sequence[Case],
    report: DifferenceReport,
    control_plane: ControlPlane,
    namespace: str,
    directory: Path,
    gang: GangScheduler | None = None,
) -> None:
    async with Client(control_plane.config) as client:
        if gang:
            await serve_pod_groups(client, gang)
        flags = [f"--namespace={namespace}-go", *([f"--gang-scheduler-name={gang.name}"] if gang else []), *TUNED]
        capabilities = await discover_capabilities(client, Settings(gang=gang))
        with running_go_operator(control_plane, directory=directory, flags=flags, kinds=list(KINDS)) as operator:
            async with (
                Side(client, f"{namespace}-go", KINDS.values(), gang=gang).open() as go,
                Side(client, f"{namespace}-ours", KINDS.values(), gang=gang).open() as ours,
                running_operator(
                    client,
                    namespace=ours.namespace,
                    settings=capabilities.settings,
                    cluster_resources=capabilities.cluster_resources,
                    pacer=StatusWritePacer(burst=10_000),  # a step has ended when nothing is written for a second
                ),
            ):
                async for step, theirs, own in run_in_lockstep(cases, go, ours):
                    operator.check()
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


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_larger_number_of_cases_begins_with_the_same_ones(kind: Kind) -> None:
    themes = themes_of(kind)
    cases = generated_cases(kind, 12, seed=SEED, themes=themes)
    assert generated_cases(kind, 60, seed=SEED, themes=themes)[:12] == cases
    assert generated_cases(kind, 12, seed=SEED + 1, themes=themes) != cases


JOB: Object = {"spec": {kind.replicas_field: {} for kind in KINDS.values()}, "status": {}}
EMPTY = Snapshot(job=JOB, pods={}, services={}, companions={}, extras={}, events=[], event_count=0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
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
def test_a_difference_that_no_row_covers_is_unexplained(kind: Kind, ours: Snapshot) -> None:
    report = DifferenceReport(DIVERGENCES, EXPLANATIONS)
    report.compare(0, Comparison(generated_cases(kind, 1, seed=SEED, themes=themes_of(kind))[0], EMPTY, ours))
    assert len(report.unexplained) == 1
