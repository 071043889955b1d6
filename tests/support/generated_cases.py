"""PyTorchJobs with a course of life, made from a seed.

Themes say what a case is about and are taken in turn, chance fills in the details: so even a small sample shows many
rules, and a large one shows each of them in many shapes.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.jobs import template
from tests.support.played_cases import Act, Case, Change, Delete, Evict, Exit, Restarted, Scene, Start, Stuck
from trainwright.objects import Object


def generated_cases(count: int, *, seed: int) -> list[Case]:
    """The first `count` cases of a seed. A larger count begins with the same cases."""
    return [_case(number, random.Random(f"{seed}/{number}")) for number in range(count)]


def _case(number: int, chance: random.Random) -> Case:
    theme = list(_THEMES)[number % len(_THEMES)]
    write = _Writer(f"case-{number:02d}", chance)
    _THEMES[theme](write)
    return Case(write.name, theme, write.manifest, write.scenes)


class _Writer:
    """A case in the making: the themes say what matters to them, everything else is left to chance."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.scenes: list[Scene] = []
        self.spec: Object = {"pytorchReplicaSpecs": {}}
        if chance.random() < 0.4:
            self.spec["nprocPerNode"] = chance.choice(["auto", "cpu", "gpu", "1", "4"])
        if policy := chance.choice([None, None, "None", "Running", "All"]):
            self.run_policy(cleanPodPolicy=policy)
        if chance.random() < 0.3:
            self.run_policy(ttlSecondsAfterFinished=3600)

    @property
    def manifest(self) -> Object:
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": self.name, "labels": {"team": "vision"}, "annotations": {"example.com/note": "mine"}},
            "spec": self.spec,
        }

    def run_policy(self, **fields: Any) -> None:
        self.spec.setdefault("runPolicy", {}).update(fields)

    def master(self, *, policy: str | None = None, **container: Any) -> None:
        self._replicas("Master", 1, policy, container)

    def workers(self, count: int | None = None, *, policy: str | None = None, **container: Any) -> int:
        number = self.chance.randint(1, 3) if count is None else count
        self._replicas("Worker", number, policy, container)
        return number

    def either_shape(self, *, policy: str | None = None) -> str:
        """With a master or with workers alone; answers with a pod whose end does not end the job by success."""
        if self.chance.random() < 0.6:
            self.master(policy=policy)
            return f"worker-{self.chance.randrange(self.workers(policy=policy))}"
        return f"worker-{self.chance.randrange(self.workers(2, policy=policy))}"

    def template_of(self, role: str) -> Object:
        pod: Object = self.spec["pytorchReplicaSpecs"][role]["template"]
        return pod

    def play(self, *acts: Act) -> None:
        self.scenes.append(acts)

    def succeed(self) -> None:
        """Everybody who has not yet ended ends well, the master before or after the workers."""
        pods = list(self.pods())
        if self.chance.random() < 0.5:
            pods.reverse()
        for pod in pods:
            self.play(Exit(pod))

    def pods(self) -> Iterator[str]:
        for role, spec in self.spec["pytorchReplicaSpecs"].items():
            yield from (f"{role.lower()}-{index}" for index in range(spec["replicas"]))

    def _replicas(self, role: str, count: int, policy: str | None, container: Object) -> None:
        spec: Object = {"replicas": count, "template": self._template(container)}
        if policy is None:
            policy = self.chance.choice([None, "Always", "OnFailure", "Never", "ExitCode"])
        if policy is not None:
            spec["restartPolicy"] = policy
        self.spec["pytorchReplicaSpecs"][role] = spec

    def _template(self, container: Object) -> Object:
        chance = self.chance
        fields: Object = {"command": ["python", "/train.py"], "args": ["--epochs", str(chance.randint(1, 9))]}
        if chance.random() < 0.3:
            fields["env"] = [{"name": "LR", "value": "0.1"}, {"name": "RANK", "value": "mine"}]
        if chance.random() < 0.3:
            fields["resources"] = {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}
        if chance.random() < 0.3:
            fields["ports"] = [{"name": "pytorchjob-port", "containerPort": chance.choice([23456, 30000])}]
        pod = template(**{**fields, **container})
        if chance.random() < 0.4:
            pod["metadata"] = {
                "labels": {"app": "digits", "group-name": "mine", "training.kubeflow.org/job-name": "mine"},
                "annotations": {"sidecar.istio.io/inject": "false"},
            }
        if chance.random() < 0.3:
            pod["spec"]["initContainers"] = [{"name": "fetch", "image": "example/fetch:1"}]
        if chance.random() < 0.3:
            pod["spec"]["containers"].append({"name": "logs", "image": "example/logs:1"})
        if chance.random() < 0.3:
            pod["spec"].update(nodeSelector={"gpu": "yes"}, volumes=[{"name": "scratch", "emptyDir": {}}])
        return pod


def _success(write: _Writer) -> None:
    write.master()
    if write.chance.random() < 0.7:
        write.workers()
    write.play(Start())
    write.succeed()


def _workers_alone(write: _Writer) -> None:
    write.workers()
    write.play(Start())
    write.succeed()


def _replaced(write: _Writer) -> None:
    failing = write.either_shape(policy=write.chance.choice(["OnFailure", "Always"]))
    write.run_policy(backoffLimit=6)
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 2, 127, 137])))
    write.play(Start())
    write.succeed()


def _retryable(write: _Writer) -> None:
    failing = write.either_shape(policy="ExitCode")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([128, 130, 137, 143, 255])))
    write.play(Start())
    write.succeed()


def _permanent(write: _Writer) -> None:
    failing = write.either_shape(policy="ExitCode")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 2, 127])))


def _never(write: _Writer) -> None:
    failing = write.either_shape(policy="Never")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 137])))


def _suspended(write: _Writer) -> None:
    write.either_shape()
    write.play(Start())
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _born_suspended(write: _Writer) -> None:
    write.either_shape()
    write.run_policy(suspend=True)
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _scaled(write: _Writer) -> None:
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


def _restarted_in_place(write: _Writer) -> None:
    pod = write.either_shape(policy="OnFailure")
    limit = write.chance.randint(1, 4)
    write.run_policy(backoffLimit=limit)
    write.play(Start())
    if limit > 1:
        write.play(Restarted(pod, limit - 1))
    write.play(Restarted(pod, limit))


def _evicted(write: _Writer) -> None:
    pod = write.either_shape(policy=write.chance.choice(["OnFailure", "ExitCode"]))
    write.play(Start())
    write.play(Evict(pod))
    write.play(Start())
    write.succeed()


def _deleted_by_hand(write: _Writer) -> None:
    """In one blow: with a grace period the terminating pod is seen, which is a theme of its own."""
    pod = write.either_shape(policy="OnFailure")
    write.play(Start())
    write.play(Delete(pod))
    write.play(Start())
    write.succeed()


def _elastic(write: _Writer) -> None:
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


def _autoscaled(write: _Writer) -> None:
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


def _forgotten(write: _Writer) -> None:
    """A time to live of nothing: the job goes when it has ended."""
    write.either_shape(policy="Never")
    write.run_policy(ttlSecondsAfterFinished=0)
    write.play(Start())
    write.succeed()


def _no_second_chance(write: _Writer) -> None:
    failing = write.either_shape(policy=write.chance.choice(["OnFailure", "ExitCode"]))
    write.run_policy(backoffLimit=0)
    write.play(Start())
    write.play(Exit(failing, 137))


def _replaced_too_often(write: _Writer) -> None:
    failing = write.either_shape(policy="OnFailure")
    write.run_policy(backoffLimit=2)
    write.play(Start())
    for _ in range(2):
        write.play(Exit(failing, 1))
        write.play(Start())


def _named_ports(write: _Writer) -> None:
    ports = [{"name": "metrics", "containerPort": 9000}, {"name": "debug", "containerPort": 5678, "protocol": "UDP"}]
    write.master(ports=ports)
    write.workers(ports=ports)
    write.play(Start())
    write.succeed()


def _unnamed_port(write: _Writer) -> None:
    write.workers(1, ports=[{"containerPort": 8080}])
    write.play(Start())


def _managed_elsewhere(write: _Writer) -> None:
    write.either_shape()
    write.run_policy(managedBy="kueue.x-k8s.io/multikueue")


def _managed_by_name(write: _Writer) -> None:
    write.either_shape()
    write.run_policy(managedBy="kubeflow.org/training-operator")
    write.play(Start())
    write.succeed()


def _policy_in_template(write: _Writer) -> None:
    pod = write.either_shape(policy="OnFailure")
    write.template_of("Worker")["spec"]["restartPolicy"] = "Never"
    write.play(Start())
    write.play(Exit(pod, 3))
    write.play(Start())
    write.succeed()


def _cannot_start(write: _Writer) -> None:
    write.either_shape()
    write.play(Stuck("worker-0", "ImagePullBackOff", 'Back-off pulling image "example/train:1"'))
    write.play(Start())
    write.succeed()


def _own_init_container(write: _Writer) -> None:
    write.master()
    write.workers(1)
    write.template_of("Worker")["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "example/fetch:1"}]
    write.play(Start())


def _late(write: _Writer) -> None:
    write.either_shape(policy="Never")
    write.run_policy(activeDeadlineSeconds=1)
    write.play(Start())
    write.play(Exit("worker-0"))


def _no_time_at_all(write: _Writer) -> None:
    write.either_shape(policy="Never")
    write.run_policy(activeDeadlineSeconds=0)


def _plenty_of_time(write: _Writer) -> None:
    write.either_shape()
    write.run_policy(activeDeadlineSeconds=3600, backoffLimit=3)
    write.play(Start())
    write.succeed()


def _deleted_slowly(write: _Writer) -> None:
    pod = write.either_shape(policy=write.chance.choice(["Never", "OnFailure"]))
    write.play(Start())
    write.play(Delete(pod, slowly=True))
    write.play(Start())


def _removed_after_its_end(write: _Writer) -> None:
    """A worker has succeeded, and somebody tidies it away while the others go on."""
    write.master()
    write.workers(2)
    write.play(Start())
    write.play(Exit("worker-1"))
    write.play(Delete("worker-1"))
    write.play(Exit("master-0"))


def _role_removed(write: _Writer) -> None:
    write.master()
    write.workers()
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": None}}))
    write.play(Exit("master-0"))


def _replicas_left_out(write: _Writer) -> None:
    write.master()
    write.workers(1)
    for spec in write.spec["pytorchReplicaSpecs"].values():
        del spec["replicas"]
    write.play(Start())
    write.play(Exit("worker-0"))
    write.play(Exit("master-0"))


_THEMES: dict[str, Callable[[_Writer], None]] = {
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
}
