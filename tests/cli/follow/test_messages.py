"""The words of `run`: progress, verdicts, and what to do next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder, at
from trainwright.cli.follow.job_state import JobStory
from trainwright.cli.follow.messages import EXIT_CODES, final_metrics, goes_on, progress_line, verdict, volume_lines
from trainwright.insight.progress import Progress
from trainwright.objects.times import format_time

KUBECTL = "kubectl --context trainwright"
MISSING = (
    "Python module torch is missing: the Python of this pod is /env/bin/python; "
    "install it there or name another with --python"
)


def story() -> JobStory:
    return JobStory(JobBuilder().master().workers(2).job(), JOB_UID)


def finished(kind: str, message: str = "") -> JobStory:
    told = story()
    conditions = [{"type": kind, "status": "True", "message": message}]
    status = {"conditions": conditions, "startTime": format_time(at(0)), "completionTime": format_time(at(42))}
    told.see_job(JobBuilder().status(status).raw())
    return told


def words(told: JobStory) -> str:
    return "\n".join(verdict(told, now=at(60), kubectl=KUBECTL))


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(), ""),
        (Progress(epoch=3), "epoch 3"),
        (Progress(epoch=3, epochs=8), "epoch 3/8  25%"),
        (Progress(epoch=3, step=720, total=1500), "epoch 3  step 720/1500  48%"),
        (Progress(step=7), "step 7"),
        (
            Progress(
                epoch=3, epochs=8, step=720, total=1500, metrics={"loss": 0.1262, "accuracy": 0.9562}, speed=412.4
            ),
            "epoch 3/8  step 720/1500  31%  accuracy 0.9562  loss 0.1262  412/s  20s left",
        ),
        (Progress(step=1, total=2, metrics={"loss": float("nan")}, speed=25_000.0), "step 1/2  50%  loss nan  25k/s"),
        (Progress(metrics={"loss": 0.00001}, speed=0.25), "loss 1e-05  0.2/s"),
    ],
)
def test_progress_says_what_is_known(progress: Progress, line: str) -> None:
    assert progress_line(progress) == line


@given(
    st.builds(
        Progress,
        epoch=st.none() | st.integers(0, 10**12),
        epochs=st.none() | st.integers(0, 10**12),
        step=st.none() | st.integers(0, 10**12),
        total=st.none() | st.integers(0, 10**12),
        metrics=st.dictionaries(st.sampled_from(["loss", "accuracy", "lr"]), st.floats()),
        speed=st.none() | st.floats(min_value=1e-300, max_value=1e300),
    )
)
def test_any_progress_can_be_told_in_one_line(progress: Progress) -> None:
    assert "\n" not in progress_line(progress)
    assert "\n" not in final_metrics(progress)


def test_success_says_how_long_and_how_good() -> None:
    told = finished("Succeeded")
    told.see_pod(PodBuilder("Master", 0).running().raw())
    told.hear("digits-master-0-uid", "loss=0.0177", 1.0)
    told.hear("digits-master-0-uid", "accuracy=0.9832", 2.0)
    assert words(told) == "digits succeeded in 42s: accuracy=0.9832 loss=0.0177"
    assert EXIT_CODES["Succeeded"] == 0


def test_success_without_metrics_says_no_more() -> None:
    assert words(finished("Succeeded")) == "digits succeeded in 42s"


def test_failure_names_rank_code_cause_and_last_words() -> None:
    told = finished("Failed", "PyTorchJob digits is failed because 1 Worker replica(s) failed.")
    told.see_pod(PodBuilder("Worker", 1).running().raw())
    told.hear("digits-worker-1-uid", "Traceback (most recent call last):", 1.0)
    told.hear("digits-worker-1-uid", "ModuleNotFoundError: No module named 'torch'", 1.0)
    pod = PodBuilder("Worker", 1).failed(1).annotation("node.trainwright.dev/python", "/env/bin/python")
    told.see_pod(pod.raw())
    assert words(told).splitlines() == [
        "digits failed after 42s: PyTorchJob digits is failed because 1 Worker replica(s) failed.",
        "  worker-1 failed first: exit code 1",
        f"  {MISSING}",
        f"  its last lines ({KUBECTL} logs digits-worker-1 -n team shows all):",
        "    Traceback (most recent call last):",
        "    ModuleNotFoundError: No module named 'torch'",
    ]
    assert EXIT_CODES["Failed"] == 1


def test_a_failure_that_nobody_explains_says_where_to_look() -> None:
    assert f"{KUBECTL} describe pytorchjob digits -n team" in words(finished("Failed"))


def test_replicas_that_outlive_a_failed_job_are_named_with_the_way_to_end_them() -> None:
    told = finished("Failed")
    told.see_pod(PodBuilder("Master", 0).running().raw())
    told.see_pod(PodBuilder("Worker", 0).failed(1).raw())
    told.see_pod(PodBuilder("Worker", 1).running().raw())
    assert words(told).splitlines()[-1] == (
        "  master-0, worker-1 still run, as spec.runPolicy.cleanPodPolicy is None: "
        f"{KUBECTL} delete pytorchjob digits -n team ends them"
    )


def test_replicas_that_are_about_to_be_cleaned_up_are_not_worth_a_word() -> None:
    told = finished("Failed")
    told.object["spec"]["runPolicy"] = {"cleanPodPolicy": "Running"}
    told.see_pod(PodBuilder("Master", 0).running().raw())
    assert "still" not in words(told)


def test_a_failed_pod_without_a_container_says_its_message() -> None:
    told = finished("Failed")
    told.see_pod(PodBuilder("Master", 0).failed(None).reason("Evicted", "low on\nmemory").raw())
    assert "master-0 failed first: Evicted (exit code 1): low on memory" in words(told)


def test_a_job_that_cannot_start_says_why_and_what_to_change() -> None:
    told = story()
    told.see_pod(PodBuilder("Worker", 0).waiting("ImageHasNoCommand", "add `command:` to container pytorch").raw())
    text = words(told)
    assert "digits cannot start: worker-0 waits with ImageHasNoCommand: add `command:` to container pytorch" in text
    assert "--replace" in text
    assert EXIT_CODES["Stuck"] == 1


def test_a_deleted_job_is_said_to_be() -> None:
    told = story()
    told.see_job(None)
    assert words(told) == "digits was deleted while it ran"


def test_a_job_that_goes_on_can_be_followed_or_ended() -> None:
    assert goes_on(story(), again="trainwright run job.yaml", kubectl=KUBECTL) == [
        "digits goes on without us",
        "  follow it: trainwright run job.yaml",
        f"  end it:    {KUBECTL} delete pytorchjob digits -n team",
    ]


def test_volumes_are_named_once() -> None:
    volumes = [("digits", "/models", "/data/x"), ("digits", "/models", "/data/x"), ("code", "/src", "/home/me")]
    assert volume_lines(volumes) == [
        "Volume digits (mounted at /models): /data/x",
        "Volume code (mounted at /src): /home/me",
    ]
