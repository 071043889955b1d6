"""Writes the manifest and the steps of a generated case: who writes says what matters, the rest is left to chance."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.differential.cases import Action, Exit, Step
from tests.support.objects.jobs import template
from trainwright.objects import Object


class CaseBuilder:
    """A case in the making: the themes say what matters to them, everything else is left to chance."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.chance = chance
        self.steps: list[Step] = []
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
        """With a master or with workers alone; answers with a pod, often a worker."""
        if self.chance.random() < 0.6:
            self.master(policy=policy)
            worker = f"worker-{self.chance.randrange(self.workers(policy=policy))}"
            return "master-0" if self.chance.random() < 0.3 else worker
        return f"worker-{self.chance.randrange(self.workers(2, policy=policy))}"

    def template_of(self, role: str) -> Object:
        pod: Object = self.spec["pytorchReplicaSpecs"][role]["template"]
        return pod

    def then(self, *actions: Action) -> None:
        self.steps.append(actions)

    def succeed(self) -> None:
        """Everybody who has not yet ended ends well, the master before or after the workers."""
        pods = list(self.pods())
        if self.chance.random() < 0.5:
            pods.reverse()
        for pod in pods:
            self.then(Exit(pod))

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
        if chance.random() < 0.3:
            pod["spec"].update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet", terminationGracePeriodSeconds=5)
        if chance.random() < 0.3:
            pod["spec"].update(tolerations=[{"operator": "Exists"}], securityContext={"runAsUser": 1000, "fsGroup": 1})
        return pod


Themes = Mapping[str, Callable[[CaseBuilder], None]]
"""By name: who writes cases of a theme."""
