"""The state of a followed job, updated by objects, events and log lines."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.followed_jobs import run_of
from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder, at, template
from tests.support.objects.shell_jobs import shell_job
from trainwright.api.job import read_job
from trainwright.cli.follow.state.job_state import JobState, state_of
from trainwright.cli.jobs.pods.pod_states import pod_state
from trainwright.cli.targets import Target
from trainwright.cluster.facade import PodRecord
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun
from trainwright.objects.node_annotations import DIRECTORY, LISTENING


def new_state(**container: Any) -> JobState:
    pod = template(**container)
    return JobState(JobBuilder().master(pod=pod).workers(2, pod=pod).job(), JOB_UID)


def finished(kind: str) -> Object:
    return JobBuilder().status({"conditions": [{"type": kind, "status": "True", "message": "done"}]}).raw()


def warning(about: str, *, reason: str = "FieldNotHonoured", message: str = "no effect", name: str = "event") -> Object:
    return {"metadata": {"name": name}, "involvedObject": {"uid": about}, "reason": reason, "message": message}


def test_phases_are_shown_by_rank() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 1).raw())
    state.update_pod(PodBuilder("Worker", 0).running().raw())
    state.update_pod(PodBuilder("Master", 0).running().raw())
    assert state.phases() == "master-0 Running  worker-0 Running  worker-1 Pending"


def test_many_pods_are_counted_by_role() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).running().raw())
    for index in range(12):
        pod = PodBuilder("Worker", index)
        state.update_pod((pod.running() if index < 10 else pod).raw())
    assert state.phases() == "master 1 Running  worker 2 Pending, 10 Running"


def test_a_deleted_pod_is_not_shown() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0, uid="first").running().raw())
    state.remove_pod("first")
    state.remove_pod("never seen")
    assert state.phases() == ""


def listening(builder: PodBuilder, ports: str) -> Object:
    pod = builder.raw()
    pod["metadata"]["annotations"] = {LISTENING: ports}
    pod["status"]["podIP"] = "127.6.64.10"
    pod["spec"]["containers"] = [{"name": "pytorch", "ports": [{"containerPort": 23456}]}]
    return pod


def test_each_port_on_which_a_rank_listens_is_reported_once_unless_it_is_declared() -> None:
    state = new_state()
    state.update_pod(listening(PodBuilder("Master", 0), "6006"))
    assert state.new_listeners() == [], "it does not run yet"
    state.update_pod(listening(PodBuilder("Master", 0).running(), "6006,23456"))
    state.update_pod(PodBuilder("Worker", 0).running().raw())
    assert state.new_listeners() == [("master-0", "127.6.64.10:6006")]

    state.update_pod(listening(PodBuilder("Master", 0).running(), "6006,8080,23456"))
    state.update_pod(listening(PodBuilder("Worker", 0).running(), "6006"))
    assert state.new_listeners() == [("master-0", "127.6.64.10:8080"), ("worker-0", "127.6.64.10:6006")]
    assert state.new_listeners() == []


def test_a_job_that_listens_on_many_ports_does_not_flood_the_output() -> None:
    state = new_state()
    for index in range(3):
        state.update_pod(listening(PodBuilder("Worker", index).running(), ",".join(map(str, range(1, 16)))))
    assert len(state.new_listeners()) == 20


def test_pods_of_other_owners_are_ignored() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).owner("another job").raw())
    state.update_pod(PodBuilder("Master", 0).owner(None).raw())
    assert state.phases() == ""


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (PodBuilder(), "Pending"),
        (PodBuilder().waiting("ContainerCreating"), "Pending"),
        (PodBuilder().waiting("ImageHasNoCommand"), "ImageHasNoCommand"),
        (PodBuilder().running(), "Running"),
        (PodBuilder().running(restarts=2), "Running (restart 2)"),
        (PodBuilder().succeeded(), "Succeeded"),
        (PodBuilder().failed(1), "Failed"),
        (PodBuilder().failed(None).reason("Evicted"), "Evicted"),
        (PodBuilder().condition("PodScheduled", "False", reason="Unschedulable"), "Unschedulable"),
        (PodBuilder().running().terminating(), "Terminating"),
    ],
)
def test_the_state_of_a_pod_is_one_word(pod: PodBuilder, state: str) -> None:
    assert pod_state(pod.pod()) == state


def test_a_worker_that_waits_for_its_master_is_in_its_init_container() -> None:
    pod = PodBuilder("Worker", 0).raw()
    pod["status"]["initContainerStatuses"] = [{"name": "init", "state": {"running": {}}}]
    state = new_state()
    state.update_pod(pod)
    assert state.phases() == "worker-0 Init"


def test_a_launcher_shows_how_many_workers_it_waits_for() -> None:
    launcher = PodBuilder("Launcher", 0).raw()
    launcher["status"]["initContainerStatuses"] = [{"name": "kubectl-delivery", "state": {"running": {}}}]
    state = new_state()
    state.update_pod(launcher)
    state.update_pod(PodBuilder("Worker", 0).running().condition("Ready", "True").raw())
    state.update_pod(PodBuilder("Worker", 1).raw())
    assert state.phases() == "worker-0 Running  worker-1 Pending  launcher-0 waits for workers 1/2"


def test_a_container_that_cannot_start_is_found_behind_an_init_container() -> None:
    pod = PodBuilder("Worker", 0).waiting("ImageHasNoCommand", "add `command:`").raw()
    pod["status"]["initContainerStatuses"] = [{"name": "init", "state": {"waiting": {"reason": "PodInitializing"}}}]
    state = new_state()
    state.update_pod(pod)
    assert state.phases() == "worker-0 ImageHasNoCommand"
    assert state.outcome == "Stuck"


@pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
def test_the_outcome_is_the_finished_condition(kind: str) -> None:
    state = new_state()
    assert state.outcome is None
    state.update_job(finished(kind))
    assert state.outcome == kind


def test_a_job_that_disappears_was_deleted() -> None:
    state = new_state()
    state.update_job(None)
    assert state.outcome == "Deleted"


def test_a_job_of_the_same_name_with_another_uid_means_deleted() -> None:
    state = new_state()
    state.update_job(JobBuilder().metadata(uid="new").raw())
    assert state.outcome == "Deleted"


def test_a_job_that_finished_and_was_deleted_has_finished() -> None:
    state = new_state()
    state.update_job(finished("Succeeded"))
    state.update_job(None)
    assert state.outcome == "Succeeded"


@pytest.mark.parametrize("reason", ["ImageHasNoCommand", "UnsupportedVolume"])
def test_a_permanent_waiting_reason_is_stuck(reason: str) -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 1).waiting(reason, "change it").raw())
    assert state.outcome == "Stuck"
    assert state.stuck is not None
    assert state.stuck[0] == "worker-1"


def test_an_image_that_is_being_pulled_again_may_still_start() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 1).waiting("ImagePullBackOff").raw())
    assert state.outcome is None


def test_progress_is_read_from_the_first_rank_that_prints_any() -> None:
    state = new_state(command=["python", "train.py"], args=["--epochs=4"])
    for role, index in (("Master", 0), ("Worker", 0), ("Worker", 1)):
        state.update_pod(PodBuilder(role, index).running().raw())
    state.add_line(run_of("worker-1"), "Train Epoch: 1 [10/100 (10%)] loss=3.0", 1.0)
    assert state.progress.metrics == {"loss": 3.0}
    state.add_line(run_of("master-0"), "Train Epoch: 2 [50/100 (50%)] loss=2.0", 2.0)
    state.add_line(run_of("worker-0"), "Train Epoch: 1 [20/100 (20%)] loss=1.0", 3.0)
    assert state.progress.metrics == {"loss": 2.0}
    assert state.progress.fraction == pytest.approx(0.375)


def test_warnings_are_shown_once_their_pod_is_known() -> None:
    state = new_state()
    state.add_warning(warning("digits-master-0-uid"), 0.0)
    assert state.new_warnings(0.0) == []
    state.update_pod(PodBuilder("Master", 0).raw())
    assert state.new_warnings(0.1) == ["master-0: FieldNotHonoured: no effect"]
    assert state.new_warnings(0.2) == []


def test_the_same_warning_of_several_pods_is_shown_once() -> None:
    state = new_state()
    for index in range(2):
        state.update_pod(PodBuilder("Worker", index).raw())
        state.add_warning(warning(f"digits-worker-{index}-uid", name=f"event-{index}"), 0.0)
    assert state.new_warnings(0.0) == ["worker-0: FieldNotHonoured: no effect"]


def test_an_image_that_is_not_here_is_no_warning_but_one_calm_line() -> None:
    state = new_state()
    text = "image pytorch:2 is not on this machine: the pod uses /python. Use the image trainwright/host if intended"
    for index in range(2):
        state.update_pod(PodBuilder("Worker", index).raw())
        event = warning(f"digits-worker-{index}-uid", reason="UnknownImage", message=text, name=f"event-{index}")
        state.add_warning(event, 0.0)
    assert state.new_warnings(0.0) == []
    assert state.new_notes() == ["image pytorch:2 is not on this machine: the pod uses /python"]
    assert state.new_notes() == []


def test_a_restart_of_all_ranks_is_told_in_short() -> None:
    state = new_state()
    text = "job digits is restarting all its replicas because digits-worker-1 failed."
    state.add_warning(warning(JOB_UID, reason="PyTorchJobRestarting", message=text), 0.0)
    assert state.new_warnings(0.0) == ["digits: worker-1 failed, so all ranks start again"]


def test_job_events_that_repeat_pod_events_are_not_shown() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).raw())
    repeated = warning(JOB_UID, reason="FailedMount", message="Error pod digits-master-0 waiting message: no volume")
    state.add_warning(repeated, 0.0)
    state.add_warning(warning("digits-master-0-uid", reason="FailedMount", message="no volume", name="pod's"), 0.0)
    assert state.new_warnings(0.1) == ["master-0: FailedMount: no volume"]


def test_events_about_failures_are_not_shown_because_the_result_says_more() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 0).raw())
    exited = "Error pod digits-worker-0 container pytorch exitCode: 1 terminated message: "
    state.add_warning(warning(JOB_UID, reason="Error", message=exited), 0.0)
    state.add_warning(warning(JOB_UID, reason="FailureDiagnosed", message="worker-0 failed first", name="two"), 0.0)
    back_off = "Error pod digits-worker-0 container pytorch waiting message: back-off 10s restarting failed container"
    state.add_warning(warning(JOB_UID, reason="CrashLoopBackOff", message=back_off, name="three"), 0.0)
    of_node = "Back-off restarting failed container pytorch in pod digits-worker-0_default(1)"
    state.add_warning(warning("digits-worker-0-uid", reason="BackOff", message=of_node, name="four"), 0.0)
    assert state.new_warnings(1.0) == []


def test_a_container_that_waits_for_something_missing_is_shown_once() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).waiting("CreateContainerConfigError", 'configmap "c" not found').raw())
    assert state.new_waiting(10.0) == []
    ((rank, waiting),) = state.new_waiting(11.5)
    assert (rank, waiting.reason) == ("master-0", "CreateContainerConfigError")
    assert state.new_waiting(12.0) == []
    state.add_warning(warning("digits-master-0-uid", reason="Failed", message='configmap "c" not found'), 12.0)
    assert state.new_warnings(12.0) == []


def test_a_stopped_job_has_ended_when_its_pods_have() -> None:
    state = new_state()
    state.object["spec"]["runPolicy"] = {"suspend": True}
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.stopping = True
    assert state.outcome is None
    state.remove_pod("digits-master-0-uid")
    assert state.outcome == "Stopped"


def with_suspend(*, suspend: bool) -> Object:
    job = JobBuilder().master().workers(2).raw()
    return {**job, "spec": {**job["spec"], "runPolicy": {"suspend": suspend}}}


def test_a_job_that_another_command_stops_has_ended_when_its_pods_have() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.update_job(with_suspend(suspend=True))
    assert state.outcome is None
    state.remove_pod("digits-master-0-uid")
    assert state.outcome == "Stopped"
    state.update_job(with_suspend(suspend=False))
    assert state.outcome is None


def test_a_job_that_is_suspended_from_its_beginning_is_followed_until_it_is_resumed() -> None:
    state = JobState(read_job(with_suspend(suspend=True)), JOB_UID)
    state.update_job(with_suspend(suspend=True))
    assert state.waits_for_resume
    assert state.outcome is None
    state.update_job(with_suspend(suspend=False))
    assert not state.waits_for_resume
    assert state.outcome is None


def test_warnings_have_the_name_of_the_job_if_there_are_several() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).raw())
    state.add_warning(warning("digits-master-0-uid"), 0.0)
    state.add_warning(warning(JOB_UID, message="odd", name="job's"), 0.0)
    assert state.new_warnings(0.0, with_job_name=True) == [
        "digits/master-0: FieldNotHonoured: no effect",
        "digits: FieldNotHonoured: odd",
    ]


def test_warnings_about_other_objects_are_not_shown() -> None:
    state = new_state()
    state.add_warning(warning("another object"), 0.0)
    assert state.new_warnings(100.0) == []


def test_a_transient_warning_is_shown_only_if_it_lasts() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).raw())
    state.add_warning(warning(JOB_UID, reason="Unschedulable", message="unbound"), 10.0)
    assert state.new_warnings(11.0) == []
    assert state.new_warnings(13.5) == ["digits: Unschedulable: unbound"]


def test_a_transient_warning_that_is_resolved_is_not_shown() -> None:
    state = new_state()
    state.add_warning(warning(JOB_UID, reason="Unschedulable", message="unbound"), 10.0)
    state.update_pod({**PodBuilder("Master", 0).running().raw(), "spec": {"nodeName": "local"}})
    assert state.new_warnings(13.5) == []


def test_the_first_failure_has_the_last_log_lines() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 1).running().raw())
    state.add_line(run_of("worker-1"), "ValueError: boom", 1.0)
    state.update_pod(PodBuilder("Worker", 1).failed(3, finished=at(5)).raw())
    state.update_pod(PodBuilder("Master", 0).failed(1, finished=at(6)).raw())
    state.remove_pod("digits-worker-1-uid")
    found = state.diagnosis()
    assert found is not None
    assert (found.rank, found.exit_code, found.evidence) == ("worker-1", 3, ("ValueError: boom",))


def test_while_only_peers_of_the_first_failing_rank_have_failed_it_is_awaited() -> None:
    state = new_state()
    state.update_pod(PodBuilder("Worker", 1).running().raw())
    state.update_pod(PodBuilder("Master", 0).running().raw())
    state.add_line(run_of("master-0"), "RuntimeError: Connection closed by peer", 1.0)
    state.update_pod(PodBuilder("Master", 0).failed(1, finished=at(5)).raw())
    assert not state.awaits_first_failure
    state.update_job(finished("Failed"))
    assert state.awaits_first_failure
    state.update_pod(PodBuilder("Worker", 1).failed(3, finished=at(5)).raw())
    assert not state.awaits_first_failure


def test_without_a_failure_there_is_no_diagnosis() -> None:
    assert new_state().diagnosis() is None


@given(st.lists(st.text(), max_size=300))
def test_any_log_line_is_accepted(lines: list[str]) -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).running().raw())
    for number, line in enumerate(lines):
        state.add_line(run_of("master-0"), line, float(number))
    assert state.outcome is None


def test_a_run_that_ended_while_the_cluster_was_down_is_not_running(tmp_path: Path) -> None:
    state = new_state()
    state.update_pod(PodBuilder("Master", 0).running().raw())
    assert list(state.running_since()) == ["master-0"]
    state.update_records([ended_master(tmp_path)])
    assert state.running_since() == {}


def ended_master(directory: Path) -> PodRecord:
    uid = "digits-master-0-uid"
    run = ContainerRun(pod_uid=uid, container="pytorch", started_at=1.0, finished_at=2.0, exit_code=1, exact=True)
    return PodRecord(
        uid=uid,
        name="digits-master-0",
        namespace="team",
        labels={},
        owner_uid=JOB_UID,
        directory=directory,
        runs=(run,),
        removed=False,
    )


def write_private_file(pod: Path, text: str) -> None:
    layer = pod / "scratch/pytorch-0/layers/tmp"
    (layer / "upper").mkdir(parents=True)
    (layer / "path").symlink_to("/tmp")
    (layer / "upper" / "model.pt").write_text(text)


def test_a_private_file_of_a_replaced_pod_is_listed_once_as_that_of_the_last_one(tmp_path: Path) -> None:
    state = new_state()
    for uid, text in (("first", "1"), ("second", "22")):
        write_private_file(tmp_path / uid, text)
        state.update_records([replace(ended_master(tmp_path / uid), uid=uid)])
    [(pod, file)] = state.private_files()
    assert (pod, file.path, file.size) == ("digits-master-0", "/tmp/model.pt", 2)


def test_the_end_is_that_of_the_last_container_of_a_finished_job(tmp_path: Path) -> None:
    state = new_state()
    state.update_records([ended_master(tmp_path)])
    assert state.ended_at is None
    state.update_job(finished("Failed"))
    assert state.ended_at == 2.0


@pytest.mark.parametrize(("policy", "left"), [("Never", ["worker-0"]), ("OnFailure", ["master-0", "worker-0"])])
def test_a_rank_whose_end_is_recorded_is_not_left_over_unless_it_starts_again(
    policy: str, left: list[str], tmp_path: Path
) -> None:
    state = new_state()
    for role in ("Master", "Worker"):
        pod = PodBuilder(role, 0).running().raw()
        pod["spec"] = {**pod.get("spec", {}), "restartPolicy": policy}
        state.update_pod(pod)
    assert state.leftover_pods() == ["master-0", "worker-0"]
    state.update_records([ended_master(tmp_path)])
    assert state.leftover_pods() == left


def test_the_number_of_epochs_is_read_from_the_program_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("Trainer(max_epochs=7)")
    job = shell_job("digits", "true")
    job["metadata"] |= {"uid": "1", "annotations": {DIRECTORY: str(tmp_path)}}
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    target = Target(ClusterConfig(server="https://127.0.0.1:1"), True, "kubectl")
    for command, epochs in ((["python", "train.py"], 7), (["python", "train.py", "--epochs=3"], 3), (["true"], None)):
        container["command"] = command
        assert state_of(job, target).progress.epochs == epochs


def test_a_program_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    job = shell_job("digits", "true")
    job["metadata"] |= {"uid": "1", "annotations": {DIRECTORY: str(tmp_path)}}
    container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    target = Target(ClusterConfig(server="https://127.0.0.1:1"), True, "kubectl")
    for word in ("train.py", "zero\0.py"):
        container["command"] = ["python", word]
        assert state_of(job, target).progress.epochs is None
