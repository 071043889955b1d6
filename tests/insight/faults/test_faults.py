"""The diagnosis of injected faults: the rank and the cause of at least 95 %, and never a wrong rank."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.insight.faults.experiment import POLICIES, Result, cases, observed_results, run_cases, sample, score
from tests.support.cluster.embedded_cluster import up_command
from tests.support.thoroughness import THOROUGH
from trainwright.insight.first_failing_rank import first_failure

SEED, SAMPLE = 7, 2


def test_what_every_fault_left_on_the_cluster_is_explained() -> None:
    results = observed_results()

    assert {(one.case, one.policy) for one in results} == {(case, policy) for case in cases() for policy in POLICIES}
    assert [str(one) for one in results if one.names_wrong_rank] == []
    wrong = [str(one) for one in results if not one.is_right]
    assert len(wrong) <= 0.05 * len(results), "\n".join(wrong)


@pytest.mark.parametrize(("logs_are_read", "share"), [(True, 0.9), (False, 0.1)])
def test_whole_seconds_and_unread_logs_never_lead_to_a_wrong_rank(logs_are_read: bool, share: float) -> None:
    """As on other clusters: times in whole seconds, and the logs of failed pods at most."""
    results = [_as_on_other_clusters(one, logs_are_read=logs_are_read) for one in observed_results()]

    assert [str(one) for one in results if one.names_wrong_rank] == []
    assert sum(one.is_right for one in results) >= share * len(results)


def _as_on_other_clusters(result: Result, *, logs_are_read: bool) -> Result:
    runs = [
        replace(
            run,
            exact=False,
            finished_at=None if run.finished_at is None else float(int(run.finished_at)),
            lines=run.lines if logs_are_read and run.exit_code else (),
        )
        for run in result.runs
    ]
    return replace(result, runs=tuple(runs), diagnosis=first_failure(runs))


@pytest.mark.torch
@pytest.mark.timeout(3 * 3600 if THOROUGH else 600)
def test_faults_on_the_embedded_cluster_are_explained(tmp_path: Path, add_summary: Callable[[str], None]) -> None:
    wanted = [(case, policy) for case in cases() for policy in POLICIES]
    if not THOROUGH:
        wanted = sample([one for one in wanted if one[0].form != "torchrun-nodes"], SAMPLE, SEED)

    with up_command(tmp_path, "--python", sys.executable) as up:
        results = list(run_cases(up.config, up.data, wanted, parallel=3))

    add_summary(f"injected faults: {score(results)}")
    assert [str(one) for one in results if one.names_wrong_rank] == []
    wrong = [str(one) for one in results if not one.is_right]
    assert len(wrong) <= 0.05 * len(results), "\n".join(wrong)
    assert len([one for one in results if not one.is_reported]) <= 0.05 * len(results)
