"""PyTorchJobs with a course of life, made from a seed.

Themes say what a case is about and are taken in turn, chance fills in the details: so even a small sample shows many
rules, and a large one shows each of them in many shapes.
"""

import random
from collections.abc import Callable, Mapping

from tests.support.case_writer import CaseWriter
from tests.support.jobs import template
from tests.support.played_cases import (
    Case,
    Change,
    Delete,
    DeleteService,
    Evict,
    Exit,
    Restarted,
    SidecarDied,
    Start,
    Stuck,
    Unschedulable,
)
from trainwright.objects import Object

Themes = Mapping[str, Callable[[CaseWriter], None]]


def generated_cases(count: int, *, seed: int, themes: Themes | None = None) -> list[Case]:
    """The first `count` cases of a seed. A larger count begins with the same cases."""
    return [_case(number, random.Random(f"{seed}/{number}"), themes or THEMES) for number in range(count)]


def _case(number: int, chance: random.Random, themes: Themes) -> Case:
    theme = list(themes)[number % len(themes)]
    write = CaseWriter(f"case-{number:02d}", chance)
    themes[theme](write)
    return Case(write.name, theme, write.manifest, write.scenes)


def _success(write: CaseWriter) -> None:
    write.master()
    if write.chance.random() < 0.7:
        write.workers()
    write.play(Start())
    write.succeed()


def _workers_alone(write: CaseWriter) -> None:
    write.workers()
    write.play(Start())
    write.succeed()


def _replaced(write: CaseWriter) -> None:
    failing = write.either_shape(policy=write.chance.choice(["OnFailure", "Always"]))
    write.run_policy(backoffLimit=6)
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 2, 127, 137])))
    write.play(Start())
    write.succeed()


def _retryable(write: CaseWriter) -> None:
    failing = write.either_shape(policy="ExitCode")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([128, 130, 137, 143, 255])))
    write.play(Start())
    write.succeed()


def _permanent(write: CaseWriter) -> None:
    failing = write.either_shape(policy="ExitCode")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 2, 127])))


def _never(write: CaseWriter) -> None:
    failing = write.either_shape(policy="Never")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 137])))


def _suspended(write: CaseWriter) -> None:
    write.either_shape()
    write.play(Start())
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _born_suspended(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(suspend=True)
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _scaled(write: CaseWriter) -> None:
    if write.chance.random() < 0.4:
        write.master()
    write.workers(2)
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}))
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}))
    if "Master" in write.spec["pytorchReplicaSpecs"]:
        write.play(Exit("master-0"))
    write.play(Exit("worker-0"))


def _restarted_in_place(write: CaseWriter) -> None:
    pod = write.either_shape(policy="OnFailure")
    limit = write.chance.randint(1, 4)
    write.run_policy(backoffLimit=limit)
    write.play(Start())
    if limit > 1:
        write.play(Restarted(pod, limit - 1))
    write.play(Restarted(pod, limit))


def _evicted(write: CaseWriter) -> None:
    pod = write.either_shape(policy=write.chance.choice(["OnFailure", "ExitCode"]))
    write.play(Start())
    write.play(Evict(pod))
    write.play(Start())
    write.succeed()


def _deleted_by_hand(write: CaseWriter) -> None:
    """In one blow: with a grace period the terminating pod is seen, which is a theme of its own."""
    pod = write.either_shape(policy="OnFailure")
    write.play(Start())
    write.play(Delete(pod))
    write.play(Start())
    write.succeed()


def _elastic(write: CaseWriter) -> None:
    write.workers(write.chance.randint(2, 3))
    policy: Object = {"minReplicas": 1, "maxReplicas": 4}
    policy |= write.chance.choice(
        [
            {},
            {"rdzvBackend": "etcd", "rdzvHost": "etcd.example", "rdzvPort": 2379},
            {
                "maxRestarts": 7,
                "rdzvId": "digits",
                "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
            },
            {"standalone": True, "nProcPerNode": 2},
        ]
    )
    if "nProcPerNode" in policy:
        write.spec.pop("nprocPerNode", None)
    write.spec["elasticPolicy"] = policy
    write.play(Start())
    write.play(Exit(f"worker-{write.chance.randrange(2)}"))


def _autoscaled(write: CaseWriter) -> None:
    write.workers(2)
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    write.spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    write.play(Start())
    write.play(Change({"elasticPolicy": {"maxReplicas": 5}}))
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _elastic_with_master(write: CaseWriter) -> None:
    write.master()
    write.workers(2)
    write.spec["elasticPolicy"] = write.chance.choice([{}, {"minReplicas": 1}, {"maxReplicas": 3}])
    write.play(Start())
    write.succeed()


def _empty_rendezvous(write: CaseWriter) -> None:
    write.workers(2)
    write.spec["elasticPolicy"] = {"maxReplicas": 2, "rdzvConf": []}
    write.play(Start())


def _forgotten(write: CaseWriter) -> None:
    """A time to live of nothing: the job goes when it has ended."""
    write.either_shape(policy="Never")
    write.run_policy(ttlSecondsAfterFinished=0)
    write.play(Start())
    write.succeed()


def _no_second_chance(write: CaseWriter) -> None:
    failing = write.either_shape(policy=write.chance.choice(["OnFailure", "ExitCode"]))
    write.run_policy(backoffLimit=0)
    write.play(Start())
    write.play(Exit(failing, 137))


def _replaced_too_often(write: CaseWriter) -> None:
    failing = write.either_shape(policy="OnFailure")
    write.run_policy(backoffLimit=2)
    write.play(Start())
    for _ in range(2):
        write.play(Exit(failing, 1))
        write.play(Start())


def _named_ports(write: CaseWriter) -> None:
    ports = [{"name": "metrics", "containerPort": 9000}, {"name": "debug", "containerPort": 5678, "protocol": "UDP"}]
    write.master(ports=ports)
    write.workers(ports=ports)
    write.play(Start())
    write.succeed()


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


def _failed_twice(write: CaseWriter) -> None:
    """Two roles, two policies, no limit."""
    write.master(policy="OnFailure")
    write.workers(2, policy="ExitCode")
    write.play(Start())
    for failing in (Exit("master-0", 1), Exit("worker-1", 143)):
        write.play(failing)
        write.play(Start())
    write.succeed()


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


def _long_name(write: CaseWriter) -> None:
    write.name += "-" + "x" * 48
    write.workers(1)
    write.play(Start())


def _own_init_container(write: CaseWriter) -> None:
    write.master()
    write.workers(1)
    write.template_of("Worker")["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "example/fetch:1"}]
    write.play(Start())


def _late(write: CaseWriter) -> None:
    write.either_shape(policy="Never")
    write.run_policy(activeDeadlineSeconds=4)
    write.play(Start())
    write.play(Exit("worker-0"))


def _no_time_at_all(write: CaseWriter) -> None:
    write.either_shape(policy="Never")
    write.run_policy(activeDeadlineSeconds=0)


def _plenty_of_time(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(activeDeadlineSeconds=3600, backoffLimit=3)
    write.play(Start())
    write.succeed()


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


THEMES: Themes = {
    "success": _success,
    "workers alone": _workers_alone,
    "replaced after a failure": _replaced,
    "retryable exit code": _retryable,
    "permanent exit code": _permanent,
    "never restarted": _never,
    "suspended and resumed": _suspended,
    "elastic": _elastic,
    "restarted in place": _restarted_in_place,
    "evicted": _evicted,
    "scaled": _scaled,
    "named ports": _named_ports,
    "born suspended": _born_suspended,
    "deleted by hand": _deleted_by_hand,
    "autoscaled": _autoscaled,
    "forgotten at its end": _forgotten,
    "no second chance": _no_second_chance,
    "replaced too often": _replaced_too_often,
    "unnamed port": _unnamed_port,
    "managed elsewhere": _managed_elsewhere,
    "managed by name": _managed_by_name,
    "restart policy in the template": _policy_in_template,
    "cannot start": _cannot_start,
    "own init container of the same name": _own_init_container,
    "past its deadline": _late,
    "no time at all": _no_time_at_all,
    "plenty of time": _plenty_of_time,
    "deleted slowly": _deleted_slowly,
    "removed after its end": _removed_after_its_end,
    "role removed": _role_removed,
    "replicas left out": _replicas_left_out,
    "elastic with master": _elastic_with_master,
    "empty rendezvous configuration": _empty_rendezvous,
    "no room": _no_room,
    "sidecar died": _sidecar_died,
    "service deleted": _service_deleted,
    "changed while running": _changed_while_running,
    "role added": _role_added,
    "scaled while suspended": _scaled_while_suspended,
    "failed twice": _failed_twice,
    "long name": _long_name,
    "scheduling policy without a gang": _no_gang,
    "keys in another letter case": _other_letter_case,
    "fields in their old places": _old_places,
}
