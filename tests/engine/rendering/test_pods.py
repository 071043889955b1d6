"""The pod of a rank: name, labels, owner and environment. The rest is the template."""

import copy

from tests.support.engine.planning import child, created, decide, events, manifests
from tests.support.objects.jobs import NOW, JobBuilder, template
from trainwright.api.job import read_job
from trainwright.engine import EMBEDDED, Observed, Settings, plan


def test_every_rank_gets_a_pod_and_a_service_the_master_first() -> None:
    made = decide(JobBuilder().workers(2).master())
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in manifests(made)] == [
        ("Pod", "digits-master-0"),
        ("Service", "digits-master-0"),
        ("Pod", "digits-worker-0"),
        ("Pod", "digits-worker-1"),
        ("Service", "digits-worker-0"),
        ("Service", "digits-worker-1"),
    ]
    assert {(obj["apiVersion"], obj["metadata"]["namespace"]) for obj in manifests(made)} == {("v1", "team")}
    assert not any(one.shared for one in made.creates)


def test_labels_of_all_generations_and_owner_are_upstreams() -> None:
    made = decide(JobBuilder().master().workers(1))
    metadata = child(made, "digits-worker-0")["metadata"]
    assert metadata == {
        "name": "digits-worker-0",
        "namespace": "team",
        "labels": {
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/job-name": "digits",
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "0",
            "group-name": "kubeflow.org",
            "job-name": "digits",
            "replica-type": "worker",
            "replica-index": "0",
            "controller-name": "pytorch-operator",
            "pytorch-job-name": "digits",
            "pytorch-replica-type": "worker",
            "pytorch-replica-index": "0",
        },
        "ownerReferences": [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "name": "digits",
                "uid": "job-uid",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_master_has_the_job_role_label() -> None:
    made = decide(JobBuilder().master().workers(1))
    assert child(made, "digits-master-0")["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert "training.kubeflow.org/job-role" not in child(made, "digits-worker-0")["metadata"]["labels"]


def test_master_has_the_job_role_labels_of_all_generations() -> None:
    labels = child(decide(JobBuilder().master()), "digits-master-0")["metadata"]["labels"]
    assert labels["job-role"] == labels["pytorch-job-role"] == "master"


def test_a_template_keeps_its_own_labels_of_earlier_generations() -> None:
    pod = template()
    pod["metadata"] = {"labels": {"job-name": "mine", "training.kubeflow.org/job-name": "mine"}}
    labels = child(decide(JobBuilder().master(pod=pod)), "digits-master-0")["metadata"]["labels"]
    assert (labels["job-name"], labels["training.kubeflow.org/job-name"]) == ("mine", "digits")


def test_first_worker_of_a_job_without_master_has_the_job_role_label() -> None:
    made = decide(JobBuilder().workers(2))
    assert child(made, "digits-worker-0")["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert "training.kubeflow.org/job-role" not in child(made, "digits-worker-1")["metadata"]["labels"]


def test_the_templates_metadata_is_copied_and_its_names_are_not() -> None:
    pod = template()
    pod["metadata"] = {
        "name": "mine",
        "namespace": "elsewhere",
        "labels": {"app": "x", "training.kubeflow.org/job-name": "wrong"},
        "annotations": {"a": "b"},
        "finalizers": ["example.com/keep"],
    }
    metadata = child(decide(JobBuilder().master(pod=pod)), "digits-master-0")["metadata"]
    assert metadata["namespace"] == "team"
    assert metadata["labels"]["app"] == "x"
    assert metadata["labels"]["training.kubeflow.org/job-name"] == "digits"
    assert metadata["annotations"] == {"a": "b"}
    assert metadata["finalizers"] == ["example.com/keep"]


def test_pod_gets_only_the_node_annotations_of_the_job() -> None:
    builder = JobBuilder().master().annotation("node.trainwright.dev/python", "/opt/python")
    builder.annotation("example.com/note", "private")
    metadata = child(decide(builder), "digits-master-0")["metadata"]
    assert metadata["annotations"] == {"node.trainwright.dev/python": "/opt/python"}


def test_pod_on_one_machine_has_the_number_of_replicas_that_share_its_cores() -> None:
    made = child(decide(JobBuilder().master().workers(2), settings=EMBEDDED), "digits-worker-1")
    assert made["metadata"]["annotations"] == {"node.trainwright.dev/replicas": "3"}


def test_unknown_fields_of_the_template_are_passed_to_the_pod() -> None:
    pod = template(futureField={"deep": [1]}, env=[{"name": "A", "value": "1"}])
    pod["spec"]["resourceClaims2030"] = [{"name": "x"}]
    pod["spec"]["containers"].append({"name": "sidecar", "image": "s"})
    spec = child(decide(JobBuilder().master(pod=pod)), "digits-master-0")["spec"]
    assert spec["resourceClaims2030"] == [{"name": "x"}]
    assert spec["containers"][0]["futureField"] == {"deep": [1]}
    assert spec["containers"][0]["env"][0] == {"name": "A", "value": "1"}
    assert spec["containers"][1]["image"] == "s"
    assert "ports" not in spec["containers"][1]


def test_planning_never_changes_the_job() -> None:
    raw = JobBuilder().master().workers(2).raw()
    before = copy.deepcopy(raw)
    plan(read_job(raw), Observed(), Settings(), NOW)
    assert raw == before


def test_the_restart_policy_comes_from_the_replica_and_exit_code_means_never() -> None:
    made = decide(JobBuilder().master(policy="ExitCode").workers(1, policy="Always"))
    assert child(made, "digits-master-0")["spec"]["restartPolicy"] == "Never"
    assert child(made, "digits-worker-0")["spec"]["restartPolicy"] == "Always"


def test_a_restart_policy_in_the_template_is_overwritten_with_a_warning() -> None:
    pod = template()
    pod["spec"]["restartPolicy"] = "Never"
    made = decide(JobBuilder().workers(2, pod=pod))
    assert child(made, "digits-worker-0")["spec"]["restartPolicy"] == "OnFailure"
    assert events(made) == [
        (
            "Warning",
            "SetPodTemplateRestartPolicy",
            "Restart policy in pod template will be overwritten by restart policy in replica spec",
        )
    ]
    assert len(created(made)) == 2
