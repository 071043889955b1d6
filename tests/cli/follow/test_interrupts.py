"""What Ctrl-C says about jobs that are followed."""

import pytest

from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder
from trainwright.cli.follow.interrupts import explanation
from trainwright.cli.follow.state.job_state import JobState

UP = "trainwright up --detach"
CHOICE = f"To go on: `{UP}`; to leave: Ctrl-C again."


def state(*, running: bool) -> JobState:
    found = JobState(JobBuilder().master().workers(1).job(), JOB_UID)
    if running:
        found.update_pod(PodBuilder("Master", 0).running().raw())
    return found


@pytest.mark.parametrize(
    ("running", "down", "text"),
    [
        (True, False, "The job keeps running. Ctrl-C again to choose: stop it, or leave it running."),
        (False, False, "The job stays. Ctrl-C again to choose: stop it, or leave it running."),
        (False, True, "The cluster is not running; the pods of the job have ended. " + CHOICE),
    ],
)
def test_the_explanation_is_true_whatever_became_of_the_cluster(*, running: bool, down: bool, text: str) -> None:
    assert explanation([state(running=running)], down=down, up=UP) == text


def test_several_jobs_are_spoken_of_in_the_plural() -> None:
    both = [state(running=True), state(running=False)]
    assert explanation(both).startswith("The jobs keep running. Ctrl-C again to choose: stop them,")
    assert explanation(both, down=True, up=UP).startswith("The cluster is not running; the pods of the jobs have ended")
