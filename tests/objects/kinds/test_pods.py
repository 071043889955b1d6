"""The view of a pod that engine and operator use."""

from trainwright.objects.kinds.pods import Pod, read_pod


def test_pod_without_status_is_pending() -> None:
    pod = read_pod({"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {}})
    assert (pod.name, pod.phase, pod.finished, pod.restarts) == ("p", "Pending", False, 0)


def test_view_drops_other_fields() -> None:
    pod = read_pod({"apiVersion": "v1", "metadata": {"name": "p", "managedFields": [{}]}, "future": 1})
    assert pod == read_pod({"metadata": {"name": "p"}})


def test_succeeded_and_failed_pods_are_finished() -> None:
    phases = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
    finished = [p for p in phases if read_pod({"metadata": {}, "status": {"phase": p}}).finished]
    assert finished == ["Succeeded", "Failed"]


def test_restarts_of_all_containers_count() -> None:
    status = {
        "podIP": "127.64.0.2",
        "initContainerStatuses": [{"name": "init", "restartCount": 2}],
        "containerStatuses": [{"name": "a", "restartCount": 3}, {"name": "b"}],
    }
    pod = read_pod({"metadata": {}, "status": status})
    assert pod.restarts == 5
    assert pod.status.pod_ip == "127.64.0.2"


def test_restarts_after_a_shutdown_of_the_embedded_cluster_do_not_count() -> None:
    def pod(annotation: str) -> Pod:
        metadata = {"name": "p", "annotations": {"node.trainwright.dev/shutdown-restarts": annotation}}
        return read_pod({"metadata": metadata, "status": {"containerStatuses": [{"name": "a", "restartCount": 3}]}})

    assert [pod(annotation).restarts for annotation in ("2", "4", "", "many")] == [1, 0, 3, 3]


def test_terminated_state_is_found_by_container_name() -> None:
    ended = {"name": "pytorch", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    running = {"name": "sidecar", "state": {"running": {"startedAt": "2026-11-15T04:05:06Z"}}}
    pod = read_pod({"metadata": {}, "status": {"containerStatuses": [running, ended]}})
    terminated = pod.terminated("pytorch")
    assert terminated is not None
    assert (terminated.exit_code, terminated.reason) == (137, "OOMKilled")
    assert pod.terminated("sidecar") is None
    assert pod.terminated("other") is None
