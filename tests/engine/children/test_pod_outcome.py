"""Outcomes of pods: success, failure, or neither."""

from datetime import datetime

import pytest

from tests.support.objects.jobs import NOW, PodBuilder, at
from trainwright.engine.children.pod_outcome import PodOutcome, exit_code, is_active, is_disrupted, outcome_of


def test_unfinished_pod_has_no_outcome() -> None:
    for pod in (PodBuilder().pod(), PodBuilder().running().pod()):
        assert outcome_of(pod) is PodOutcome.NONE


def test_only_a_running_pod_that_is_not_terminating_is_active() -> None:
    assert is_active(PodBuilder().running().pod())
    assert not is_active(PodBuilder().pod())
    assert not is_active(PodBuilder().running().terminating().pod())


def test_outcome_of_a_pod_that_is_not_deleted_is_its_phase() -> None:
    assert outcome_of(PodBuilder().succeeded().pod()) is PodOutcome.SUCCEEDED
    assert outcome_of(PodBuilder().failed(1).pod()) is PodOutcome.FAILED


@pytest.mark.parametrize(
    ("finished", "end"), [(at(-1), PodOutcome.SUCCEEDED), (NOW, PodOutcome.DELETED), (at(5), PodOutcome.DELETED)]
)
@pytest.mark.parametrize("grace", [0, 30])
def test_success_of_a_deleted_pod_counts_only_if_it_finished_before(
    finished: datetime, end: PodOutcome, grace: int
) -> None:
    assert outcome_of(PodBuilder().succeeded(finished=finished).terminating(NOW, grace=grace).pod()) is end


def test_failure_before_the_deletion_counts() -> None:
    assert outcome_of(PodBuilder().failed(1, finished=at(-1)).terminating(NOW).pod()) is PodOutcome.FAILED


def test_deleted_pod_without_final_status_has_the_outcome_deleted() -> None:
    assert outcome_of(PodBuilder().running().terminating().pod()) is PodOutcome.DELETED
    assert outcome_of(PodBuilder().failed(None).terminating().pod()) is PodOutcome.DELETED


def test_the_exit_code_is_that_of_the_training_container() -> None:
    assert exit_code(PodBuilder().failed(137).pod(), "pytorch") == 137
    assert exit_code(PodBuilder().failed(137).pod(), "sidecar") is None
    assert exit_code(PodBuilder().failed(None).pod(), "pytorch") is None


def test_evictions_and_preemptions_are_disruptions() -> None:
    assert is_disrupted(PodBuilder().failed(None).reason("Evicted").pod())
    assert is_disrupted(PodBuilder().failed(137).condition("DisruptionTarget").pod())
    assert not is_disrupted(PodBuilder().failed(137).condition("DisruptionTarget", "False").pod())
    assert not is_disrupted(PodBuilder().failed(1).pod())


def test_a_pod_is_ready_if_its_condition_says_so() -> None:
    assert PodBuilder().running().condition("Initialized").condition("Ready").pod().ready
    assert not PodBuilder().running().condition("Initialized").condition("Ready", "False").pod().ready
    assert not PodBuilder().running().pod().ready
