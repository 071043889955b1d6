"""The texts of `run`: progress, results, and what to do next."""

import pytest

from tests.support.objects.followed_jobs import run_of
from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder, at
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.follow.state.rank_troubles import Silence
from trainwright.cli.follow.texts.messages import (
    EXIT_CODES,
    Suggestions,
    ended_lines,
    final_metrics,
    phases_text,
    repeated_failure_lines,
    result_lines,
    silence_lines,
    still_running_lines,
    volume_lines,
)
from trainwright.insight.log_progress import Progress
from trainwright.objects.times import format_time

SUGGEST = Suggestions(namespace="default")


def new_state() -> JobState:
    return JobState(JobBuilder().master().workers(2).job(), JOB_UID)


def finished(kind: str, message: str = "") -> JobState:
    state = new_state()
    conditions = [{"type": kind, "status": "True", "message": message}]
    status = {"conditions": conditions, "startTime": format_time(at(0)), "completionTime": format_time(at(42))}
    state.update_job(JobBuilder().status(status).raw())
    return state


def result(state: JobState) -> str:
    return "\n".join(result_lines(state, now=at(60), suggest=SUGGEST))


def test_success_shows_duration_and_metrics() -> None:
    state = finished("Succeeded")
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.add_line(run_of("master-0"), "loss=0.0177", 1.0)
    state.add_line(run_of("master-0"), "accuracy=0.9832", 2.0)
    state.update_pod(PodBuilder("Master", 0).succeeded().raw())
    assert result(state) == "digits succeeded in 42s: accuracy=0.9832 loss=0.0177"
    assert EXIT_CODES["Succeeded"] == 0


def test_success_without_metrics_shows_the_duration() -> None:
    assert result(finished("Succeeded")) == "digits succeeded in 42s"


def test_failure_shows_rank_exit_code_cause_and_last_lines() -> None:
    state = finished("Failed", "PyTorchJob digits is failed because 1 Worker replica(s) failed.")
    state.update_pod(PodBuilder("Worker", 1).running().raw())
    state.add_line(run_of("worker-1"), "Traceback (most recent call last):", 1.0)
    state.add_line(run_of("worker-1"), "ModuleNotFoundError: No module named 'torch'", 1.0)
    pod = PodBuilder("Worker", 1).failed(1).annotation("node.trainwright.dev/python", "/env/bin/python")
    state.update_pod(pod.raw())
    first, advice, *rest = result(state).splitlines()
    assert first == "digits failed after 42s: worker-1 failed first: ModuleNotFoundError: No module named 'torch'"
    assert "/env/bin/python" in advice
    assert rest == [
        "  what it printed last (all of it: trainwright logs --rank worker-1 digits -n team):",
        "    Traceback (most recent call last):",
        "    ModuleNotFoundError: No module named 'torch'",
    ]
    assert EXIT_CODES["Failed"] == 1


def test_no_command_is_suggested_for_a_job_that_is_deleted_at_the_end() -> None:
    state = finished("Failed")
    assert result_lines(state, now=at(60), suggest=SUGGEST, removed=True)[1:] == ["  no failed pod was seen"]
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.update_pod(PodBuilder("Worker", 1).failed(1).raw())
    state.add_line(run_of("worker-1"), "boom", 1.0)
    stuck = new_state()
    stuck.update_pod(PodBuilder("Worker", 0).waiting("ImageHasNoCommand", "add `command:`").raw())
    for one in (state, stuck):
        assert "trainwright" not in "\n".join(result_lines(one, now=at(60), suggest=SUGGEST, removed=True))
    assert "  what it printed last:" in result_lines(state, now=at(60), suggest=SUGGEST, removed=True)


def test_a_progress_bar_in_the_last_lines_is_shown_as_on_a_terminal() -> None:
    state = finished("Failed")
    state.update_pod(PodBuilder("Worker", 1).failed(1).raw())
    state.add_line(run_of("worker-1"), "\r  1/100 [....] - loss: 7.2\b\b\b\r 20/100 [=>..] - loss: 3.2\b\b\b", 1.0)
    assert result(state).splitlines()[-1] == "     20/100 [=>..] - loss: 3.2"


def test_a_failure_without_a_failed_pod_refers_to_the_events() -> None:
    assert "see its events: trainwright events digits -n team" in result(finished("Failed"))


def test_pods_that_keep_running_after_a_failure_are_listed() -> None:
    state = finished("Failed")
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.update_pod(PodBuilder("Worker", 0).failed(1).raw())
    state.update_pod(PodBuilder("Worker", 1).running().raw())
    assert result(state).splitlines()[-2:] == [
        "  master-0, worker-1 still run: cleanPodPolicy is None, Kubeflow's default, which leaves pods for debugging",
        "  end them: trainwright stop digits -n team; `cleanPodPolicy: Running` ends them with the job",
    ]


def test_ranks_that_are_ended_after_a_failure_are_named_in_one_line() -> None:
    state = finished("Failed")
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.update_pod(PodBuilder("Worker", 0).failed(1).raw())
    assert not any("still" in line for line in result_lines(state, now=at(60), suggest=SUGGEST, ends_ranks=True))
    assert ended_lines(state.leftover_pods()) == ["  ended master-0, which waited for it"]
    assert ended_lines([]) == []


def test_pods_that_keep_running_after_success_are_listed_with_the_fix() -> None:
    state = finished("Succeeded")
    state.update_pod(PodBuilder("Master", 0).succeeded().raw())
    state.update_pod(PodBuilder("Worker", 1).running().raw())
    assert result(state).splitlines()[1].startswith("  worker-1 still runs: cleanPodPolicy is None")


def test_metrics_that_a_program_names_itself_come_after_the_well_known_ones() -> None:
    metrics = {"train-rmse": 0.1, "lr": 0.01, "eval-rmse": 0.2, "loss": 3.0, "eval-mae": 0.5}
    assert final_metrics(Progress(metrics=metrics)) == "loss=3.0000 train-rmse=0.1000 eval-rmse=0.2000 eval-mae=0.5000"


def test_pods_that_will_be_cleaned_up_are_not_listed() -> None:
    state = finished("Failed")
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.object["spec"]["runPolicy"] = {"cleanPodPolicy": "Running"}
    assert "still" not in result(state)
    state.object["spec"].update(runPolicy={}, cleanPodPolicy="All")  # as earlier operators had it
    assert "still" not in result(state)


def test_a_failed_pod_without_a_container_shows_its_message() -> None:
    state = finished("Failed")
    state.update_pod(PodBuilder("Master", 0).failed(None).reason("Evicted", "low on\nmemory").raw())
    assert "master-0 failed first: Evicted: low on memory" in result(state)


def test_a_job_that_cannot_start_shows_why_and_what_to_change() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 0).waiting("ImageHasNoCommand", "add `command:` to container pytorch").raw())
    text = result(state)
    assert "digits cannot start: worker-0 is waiting: ImageHasNoCommand: add `command:` to container pytorch" in text
    assert "--replace" in text
    assert EXIT_CODES["Stuck"] == 1


def test_a_deleted_job_is_reported() -> None:
    state = new_state()
    state.update_job(None)
    assert result(state) == "digits was deleted while it was running"


def test_a_job_that_keeps_running_can_be_followed_or_deleted() -> None:
    assert still_running_lines(new_state(), suggest=SUGGEST) == [
        "digits is still running",
        "  follow it: trainwright logs -f digits -n team",
        "  stop it: trainwright stop digits -n team",
    ]


def test_a_job_that_waits_is_not_called_running() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).waiting("FailedMount", "no volume").raw())
    assert still_running_lines(state, suggest=SUGGEST)[0] == "digits has not started: master-0 FailedMount"


def test_a_job_that_has_run_is_not_called_one_that_has_not_started() -> None:
    state = new_state()
    state.add_line(run_of("master-0"), "step 1", 1.0)
    state.update_pod(PodBuilder("Master", 0).waiting("CrashLoopBackOff", "back-off").raw())
    assert still_running_lines(state, suggest=SUGGEST)[0] == "digits has not finished"


def test_volumes_are_named_once() -> None:
    volumes = [("digits", "/models", "/data/x"), ("digits", "/models", "/data/x"), ("code", "/src", "/home/me")]
    assert volume_lines(volumes) == [
        "Volume digits (mounted at /models): /data/x",
        "Volume code (mounted at /src): /home/me",
    ]


def test_ranks_that_failed_because_of_another_one_are_told_apart() -> None:
    state = finished("Failed")
    for rank, line, code in (("worker-1", "ValueError: boom", 1), ("master-0", "Connection reset by peer", 1)):
        role, index = rank.split("-")
        state.add_line(run_of(rank), "Traceback (most recent call last):", 1.0)
        state.add_line(run_of(rank), line, 1.0)
        state.update_pod(PodBuilder(role.title(), int(index)).failed(code, finished=at(5)).raw())
    assert result(state).splitlines()[:2] == [
        "digits failed after 42s: worker-1 failed first: ValueError: boom",
        "  master-0 failed because of it, or was ended by clean-up",
    ]


def test_a_limit_that_ended_the_job_is_named() -> None:
    state = finished("Failed", "Job digits has failed because it was active longer than specified deadline")
    state.update_pod(PodBuilder("Master", 0).failed(143).raw())
    assert "  Job digits has failed because it was active longer than specified deadline" in result(state).splitlines()


def test_the_loss_is_drawn_over_time() -> None:
    state = finished("Succeeded")
    for number, loss in enumerate([2.5, 1.9, 1.2, 0.7, 0.4, 0.2]):
        state.add_line(run_of("master-0"), f"step {number} loss={loss}", 10.0 + number)
    assert result(state).splitlines() == [
        "digits succeeded in 42s: loss=0.2000",
        "  loss █▆▄▃▂▁ 2.5000 → 0.2000",
    ]


def test_a_stopped_job_can_be_resumed_or_deleted() -> None:
    state = new_state()
    state.stopping = True
    state.object["spec"]["runPolicy"] = {"suspend": True}
    assert result(state).splitlines() == [
        "digits is stopped after 60s; its files are kept",
        "  start it again: trainwright resume digits -n team",
        "  delete it: trainwright delete digits -n team",
    ]
    assert EXIT_CODES["Stopped"] == 130


def test_a_suspended_job_is_shown_with_the_command_that_resumes_it() -> None:
    state = new_state()
    state.object["spec"]["runPolicy"] = {"suspend": True}
    assert phases_text(state, suggest=SUGGEST) == "suspended; resume it with: trainwright resume digits -n team"
    assert still_running_lines(state, suggest=SUGGEST) == [
        "digits is suspended",
        "  start it: trainwright resume digits -n team",
    ]
    state.update_pod(PodBuilder("Master", 0).running().raw())
    assert phases_text(state, suggest=SUGGEST) == "master-0 Running"


def test_no_message_of_a_pod_can_move_the_cursor() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 0).waiting("ImageHasNoCommand", "\x1b[2Jadd\x07 `command:`").raw())
    assert "worker-0 is waiting: ImageHasNoCommand: add `command:`" in result(state)


MISSING_MODULE = "ModuleNotFoundError: No module named 'torhc'"


def failed_twice(state: JobState, error: str = MISSING_MODULE, *, seconds: int = 1) -> JobState:
    for number in range(2):
        state.add_line(run_of("worker-1", number=number), "Traceback (most recent call last):", 1.0)
        state.add_line(run_of("worker-1", number=number), error, 1.0)
    pod = PodBuilder("Worker", 1).running(restarts=2).raw()
    run = {"exitCode": 1, "startedAt": format_time(at(1)), "finishedAt": format_time(at(1 + seconds))}
    (status,) = pod["status"]["containerStatuses"]
    status |= {"restartCount": 1, "state": {"terminated": run}, "lastState": {"terminated": run}}
    state.update_pod(pod)
    return state


def test_a_program_that_fails_at_once_again_and_again_is_explained() -> None:
    state = failed_twice(new_state())
    (repeated,) = state.new_repeated_failures()
    first, *_, last = repeated_failure_lines(state, repeated, suggest=SUGGEST)
    assert first.startswith("worker-1 has failed 2 times in the same way, each time 1.0 s after its start: ")
    assert "torhc" in first
    assert last == "  it will be started again; to stop the job: trainwright stop digits -n team"
    assert state.new_repeated_failures() == []


@pytest.mark.parametrize(("error", "messages"), [(MISSING_MODULE, 1), ("ValueError: a number of the data", 0)])
def test_a_program_that_fails_late_is_explained_if_no_restart_helps(error: str, messages: int) -> None:
    assert len(failed_twice(new_state(), error, seconds=40).new_repeated_failures()) == messages


@pytest.mark.parametrize(("limit", "messages"), [(2, 0), (3, 1)])
def test_a_failure_is_only_called_repeated_if_a_restart_is_left(limit: int, messages: int) -> None:
    state = new_state()
    state.object["spec"]["runPolicy"] = {"backoffLimit": limit}
    assert len(failed_twice(state).new_repeated_failures()) == messages


def test_no_restart_of_a_failed_job_is_announced() -> None:
    assert failed_twice(finished("Failed")).new_repeated_failures() == []


@pytest.mark.parametrize(
    ("limit", "line"),
    [
        (0, "  what it printed last (all of it: trainwright logs --rank master-0 digits -n team):"),
        (2, "  it had failed 2 times, and runPolicy.backoffLimit (--max-restarts) allows no more"),
    ],
)
def test_the_backoff_limit_is_named_if_it_allowed_restarts(limit: int, line: str) -> None:
    state = finished("Failed", "Job digits has failed because it has reached the specified backoff limit")
    state.object["spec"]["runPolicy"] = {"backoffLimit": limit}
    state.update_pod(PodBuilder("Master", 0).failed(1).raw())
    state.add_line(run_of("master-0"), "ValueError: boom", 1.0)
    assert result(state).splitlines()[1] == line


def test_silent_ranks_are_named_with_the_command_that_shows_where_they_are() -> None:
    everyone = Silence(("master-0", *(f"worker-{index}" for index in range(9))), 31.0, everyone=True)
    assert silence_lines(new_state(), everyone, suggest=SUGGEST) == [
        (
            "no output for 31s; running: master-0, worker-0, worker-1 and 7 more; "
            "to see where they are: trainwright stack digits -n team"
        )
    ]
    one = Silence(("worker-1",), 60.0, everyone=False)
    assert silence_lines(new_state(), one, suggest=SUGGEST) == [
        "worker-1 prints nothing for 60s while other ranks do; to see where: trainwright stack digits -n team"
    ]
    assert silence_lines(new_state(), None, suggest=SUGGEST) == []


def test_silence_after_an_exception_of_one_process_names_it() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 1).running().raw())
    state.add_line(run_of("worker-1"), "Traceback (most recent call last):", 1.0)
    state.add_line(run_of("worker-1"), "ValueError: bad shard 7", 1.0)
    silence = Silence(("master-0", "worker-1"), 31.0, everyone=True)
    assert silence_lines(state, silence, suggest=SUGGEST)[1:] == ["  worker-1 has printed: ValueError: bad shard 7"]

    state.update_pod(PodBuilder("Worker", 1).failed(1).raw())
    assert silence_lines(state, silence, suggest=SUGGEST)[1:] == []
