"""Themes of generated cases: unusual manifests and interventions of users."""

from tests.support.differential.case_builder import CaseBuilder, Themes
from tests.support.differential.cases import (
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


def _unnamed_port(case: CaseBuilder) -> None:
    case.workers(1, ports=[{"containerPort": 8080}])
    case.then(Start())


def _managed_by_another(case: CaseBuilder) -> None:
    case.any_shape()
    case.run_policy(managedBy="kueue.x-k8s.io/multikueue")


def _managed_by_name(case: CaseBuilder) -> None:
    case.any_shape()
    case.run_policy(managedBy="kubeflow.org/training-operator")
    case.then(Start())
    case.succeed()


def _policy_in_template(case: CaseBuilder) -> None:
    pod = case.any_shape(policy="OnFailure")
    case.template_of("Worker")["spec"]["restartPolicy"] = "Never"
    case.then(Start())
    case.then(Exit(pod, 3))
    case.then(Start())
    case.succeed()


def _cannot_start(case: CaseBuilder) -> None:
    case.any_shape()
    case.then(Stuck("worker-0", "ImagePullBackOff", 'Back-off pulling image "example/train:1"'))
    case.then(Start())
    case.succeed()


def _restricted(case: CaseBuilder) -> None:
    """Pods that the restricted Pod Security Standard admits."""
    case.leader()
    case.workers(1)
    for role in case.roles:
        spec = case.template_of(role)["spec"]
        spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in spec["containers"]:
            container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    case.then(Start())
    case.succeed()


def _zero_deadline(case: CaseBuilder) -> None:
    case.any_shape(policy="Never")
    case.run_policy(activeDeadlineSeconds=0)


def _deleted_slowly(case: CaseBuilder) -> None:
    pod = case.any_shape(policy=case.dice.choice(["Never", "OnFailure"]))
    case.then(Start())
    case.then(Delete(pod, slowly=True))
    case.then(Start())


def _removed_after_its_end(case: CaseBuilder) -> None:
    """A user deletes a worker that has succeeded while the others run."""
    case.leader()
    case.workers(2)
    case.then(Start())
    case.then(Exit("worker-1"))
    case.then(Delete("worker-1"))
    case.then(Exit(case.decider))


def _role_removed(case: CaseBuilder) -> None:
    case.leader()
    case.workers()
    case.then(Start())
    case.then(Change(case.change("Worker", None)))
    case.then(Exit(case.decider))


def _replicas_left_out(case: CaseBuilder) -> None:
    case.leader()
    case.workers(1)
    for spec in case.roles.values():
        del spec["replicas"]
    case.then(Start())
    case.then(Exit("worker-0"))
    case.then(Exit(case.decider))


def _no_replicas(case: CaseBuilder) -> None:
    """Of the role that decides."""
    case.replicas(next(role.name for role in case.kind.roles if role.exactly is None), 0)


def _unschedulable(case: CaseBuilder) -> None:
    case.any_shape()
    case.then(Unschedulable("worker-0"))
    case.then(Start())
    case.succeed()


def _sidecar_died(case: CaseBuilder) -> None:
    case.leader()
    case.workers(1)
    containers = case.template_of("Worker")["spec"]["containers"]
    main = next(one for one in containers if one["name"] == (case.kind.container or "main"))
    containers[:] = [main, {"name": "logs", "image": "example/logs:1"}]
    case.then(Start())
    case.then(SidecarDied("worker-0"))
    case.succeed()


def _service_deleted(case: CaseBuilder) -> None:
    pod = case.any_shape()
    case.then(Start())
    case.then(DeleteService(pod))
    case.succeed()


def _changed_while_running(case: CaseBuilder) -> None:
    """A changed template applies to new pods, and changes of a finished job have no effect."""
    case.workers(2, policy="Never")
    case.then(Start())
    template = {"metadata": {"labels": {"generation": "second"}}}
    case.then(Change(case.change("Worker", {"template": template})))
    case.succeed()
    case.then(Change({"runPolicy": {"suspend": True}, **case.change("Worker", {"replicas": 3})}))


def _role_added(case: CaseBuilder) -> None:
    case.leader()
    workers = {"replicas": 2, "template": template(name=case.kind.container or "main", command=["python", "/train.py"])}
    case.then(Start())
    case.then(Change(case.change("Worker", workers)))
    case.then(Start())
    case.then(Exit("worker-1"))
    case.then(Exit(case.decider))


def _scaled_while_suspended(case: CaseBuilder) -> None:
    case.workers(1)
    case.then(Start())
    case.then(Change({"runPolicy": {"suspend": True}}))
    case.then(Change(case.change("Worker", {"replicas": 2})))
    case.then(Change({"runPolicy": {"suspend": False}}))
    case.then(Start())
    case.succeed()


def _long_name(case: CaseBuilder) -> None:
    case.name += "-" + "x" * 48
    case.workers(1)
    case.then(Start())


def _no_gang(case: CaseBuilder) -> None:
    case.any_shape()
    case.run_policy(schedulingPolicy={"minAvailable": 1, "queue": "research"})
    case.then(Start())
    case.succeed()


def _other_letter_case(case: CaseBuilder) -> None:
    case.leader()
    case.workers()
    case.then(Start())
    case.succeed()
    case.roles["worker"] = case.roles.pop("Worker")


def _legacy_fields(case: CaseBuilder) -> None:
    """The fields of the first operators, which the Go operator drops."""
    case.workers(1, policy="Never")
    case.spec.get("runPolicy", {}).pop("cleanPodPolicy", None)
    case.spec["cleanPodPolicy"] = "All"
    case.then(Start())
    case.succeed()


EDGE_CASES: Themes = {
    "unnamed port": _unnamed_port,
    "managed by another controller": _managed_by_another,
    "managed by name": _managed_by_name,
    "restart policy in the template": _policy_in_template,
    "cannot start": _cannot_start,
    "restricted": _restricted,
    "zero deadline": _zero_deadline,
    "deleted slowly": _deleted_slowly,
    "removed after its end": _removed_after_its_end,
    "role removed": _role_removed,
    "replicas left out": _replicas_left_out,
    "no replicas": _no_replicas,
    "unschedulable": _unschedulable,
    "sidecar died": _sidecar_died,
    "service deleted": _service_deleted,
    "changed while running": _changed_while_running,
    "role added": _role_added,
    "scaled while suspended": _scaled_while_suspended,
    "long name": _long_name,
    "scheduling policy without a gang": _no_gang,
    "keys in another letter case": _other_letter_case,
    "legacy fields": _legacy_fields,
}
