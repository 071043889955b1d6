"""Themes of generated cases: manifests and interventions that an operator has to put up with."""

from tests.support.differential.case_writer import CaseWriter, Themes
from tests.support.differential.played_cases import (
    Change,
    Delete,
    DeleteService,
    Exit,
    SidecarDied,
    Start,
    Stuck,
    Unschedulable,
)
from tests.support.objects.jobs import template


def _unnamed_port(write: CaseWriter) -> None:
    write.workers(1, ports=[{"containerPort": 8080}])
    write.play(Start())


def _managed_elsewhere(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(managedBy="kueue.x-k8s.io/multikueue")


def _managed_by_name(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(managedBy="kubeflow.org/training-operator")
    write.play(Start())
    write.succeed()


def _policy_in_template(write: CaseWriter) -> None:
    pod = write.either_shape(policy="OnFailure")
    write.template_of("Worker")["spec"]["restartPolicy"] = "Never"
    write.play(Start())
    write.play(Exit(pod, 3))
    write.play(Start())
    write.succeed()


def _cannot_start(write: CaseWriter) -> None:
    write.either_shape()
    write.play(Stuck("worker-0", "ImagePullBackOff", 'Back-off pulling image "example/train:1"'))
    write.play(Start())
    write.succeed()


def _restricted(write: CaseWriter) -> None:
    """Pods that a namespace of restricted pods would take."""
    write.master()
    write.workers(1)
    for role in ("Master", "Worker"):
        spec = write.template_of(role)["spec"]
        spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in spec["containers"]:
            container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    write.play(Start())
    write.succeed()


def _own_init_container(write: CaseWriter) -> None:
    write.master()
    write.workers(1)
    write.template_of("Worker")["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "example/fetch:1"}]
    write.play(Start())


def _no_time_at_all(write: CaseWriter) -> None:
    write.either_shape(policy="Never")
    write.run_policy(activeDeadlineSeconds=0)


def _deleted_slowly(write: CaseWriter) -> None:
    pod = write.either_shape(policy=write.chance.choice(["Never", "OnFailure"]))
    write.play(Start())
    write.play(Delete(pod, slowly=True))
    write.play(Start())


def _removed_after_its_end(write: CaseWriter) -> None:
    """A worker has succeeded, and somebody tidies it away while the others go on."""
    write.master()
    write.workers(2)
    write.play(Start())
    write.play(Exit("worker-1"))
    write.play(Delete("worker-1"))
    write.play(Exit("master-0"))


def _role_removed(write: CaseWriter) -> None:
    write.master()
    write.workers()
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": None}}))
    write.play(Exit("master-0"))


def _replicas_left_out(write: CaseWriter) -> None:
    write.master()
    write.workers(1)
    for spec in write.spec["pytorchReplicaSpecs"].values():
        del spec["replicas"]
    write.play(Start())
    write.play(Exit("worker-0"))
    write.play(Exit("master-0"))


def _elastic_of_old(write: CaseWriter) -> None:
    write.workers(2)
    write.spec.pop("nprocPerNode", None)
    write.spec["elasticPolicy"] = {"maxReplicas": 2, "nProcPerNode": 2}
    write.play(Start())
    write.succeed()


def _empty_rendezvous(write: CaseWriter) -> None:
    write.workers(2)
    write.spec["elasticPolicy"] = {"maxReplicas": 2, "rdzvConf": []}
    write.play(Start())


def _no_room(write: CaseWriter) -> None:
    write.either_shape()
    write.play(Unschedulable("worker-0"))
    write.play(Start())
    write.succeed()


def _sidecar_died(write: CaseWriter) -> None:
    write.master()
    write.workers(1)
    write.template_of("Worker")["spec"]["containers"][1:] = [{"name": "logs", "image": "example/logs:1"}]
    write.play(Start())
    write.play(SidecarDied("worker-0"))
    write.succeed()


def _service_deleted(write: CaseWriter) -> None:
    pod = write.either_shape()
    write.play(Start())
    write.play(DeleteService(pod))
    write.succeed()


def _changed_while_running(write: CaseWriter) -> None:
    """A new template is for new pods, and a finished job no longer listens."""
    write.workers(2, policy="Never")
    write.play(Start())
    template = {"metadata": {"labels": {"generation": "second"}}}
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"template": template}}}))
    write.succeed()
    write.play(Change({"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}))


def _role_added(write: CaseWriter) -> None:
    write.master()
    workers = {"replicas": 2, "template": template(command=["python", "/train.py"])}
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": workers}}))
    write.play(Start())
    write.play(Exit("worker-1"))
    write.play(Exit("master-0"))


def _scaled_while_suspended(write: CaseWriter) -> None:
    write.workers(1)
    write.play(Start())
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _long_name(write: CaseWriter) -> None:
    write.name += "-" + "x" * 48
    write.workers(1)
    write.play(Start())


def _no_gang(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(schedulingPolicy={"minAvailable": 1, "queue": "research"})
    write.play(Start())
    write.succeed()


def _other_letter_case(write: CaseWriter) -> None:
    write.master()
    write.workers()
    write.play(Start())
    write.succeed()
    specs = write.spec["pytorchReplicaSpecs"]
    specs["worker"] = specs.pop("Worker")


def _old_places(write: CaseWriter) -> None:
    """Where the first operators had these fields; Go drops them."""
    write.workers(1, policy="Never")
    write.spec.get("runPolicy", {}).pop("cleanPodPolicy", None)
    write.spec["cleanPodPolicy"] = "All"
    write.play(Start())
    write.succeed()


AWKWARD: Themes = {
    "unnamed port": _unnamed_port,
    "managed elsewhere": _managed_elsewhere,
    "managed by name": _managed_by_name,
    "restart policy in the template": _policy_in_template,
    "cannot start": _cannot_start,
    "restricted": _restricted,
    "own init container of the same name": _own_init_container,
    "no time at all": _no_time_at_all,
    "deleted slowly": _deleted_slowly,
    "removed after its end": _removed_after_its_end,
    "role removed": _role_removed,
    "replicas left out": _replicas_left_out,
    "elastic with the deprecated number of processes": _elastic_of_old,
    "empty rendezvous configuration": _empty_rendezvous,
    "no room": _no_room,
    "sidecar died": _sidecar_died,
    "service deleted": _service_deleted,
    "changed while running": _changed_while_running,
    "role added": _role_added,
    "scaled while suspended": _scaled_while_suspended,
    "long name": _long_name,
    "scheduling policy without a gang": _no_gang,
    "keys in another letter case": _other_letter_case,
    "fields in their old places": _old_places,
}
