"""Generates cases from a seed: a theme sets what a case is about, the rest is random.

Themes take turns, so that a small sample covers many rules and a large one covers each of them in many forms.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.differential.cases import Action, Case, Exit, Step
from tests.support.objects.jobs import template
from trainwright.objects import Object


class CaseBuilder:
    """The fields that a theme does not set get random values."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name = name
        self.dice = dice
        self.steps: list[Step] = []
        self.spec: Object = {"pytorchReplicaSpecs": {}}
        if dice.random() < 0.4:
            self.spec["nprocPerNode"] = dice.choice(["auto", "cpu", "gpu", "1", "4"])
        if policy := dice.choice([None, None, "None", "Running", "All"]):
            self.run_policy(cleanPodPolicy=policy)
        if dice.random() < 0.3:
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
        number = self.dice.randint(1, 3) if count is None else count
        self._replicas("Worker", number, policy, container)
        return number

    def either_shape(self, *, policy: str | None = None) -> str:
        """With or without a master; returns the name of a pod, mostly of a worker."""
        if self.dice.random() < 0.6:
            self.master(policy=policy)
            worker = f"worker-{self.dice.randrange(self.workers(policy=policy))}"
            return "master-0" if self.dice.random() < 0.3 else worker
        return f"worker-{self.dice.randrange(self.workers(2, policy=policy))}"

    def template_of(self, role: str) -> Object:
        pod: Object = self.spec["pytorchReplicaSpecs"][role]["template"]
        return pod

    def then(self, *actions: Action) -> None:
        self.steps.append(actions)

    def succeed(self) -> None:
        """All pods succeed, the master before or after the workers."""
        pods = list(self.pods())
        if self.dice.random() < 0.5:
            pods.reverse()
        for pod in pods:
            self.then(Exit(pod))

    def pods(self) -> Iterator[str]:
        for role, spec in self.spec["pytorchReplicaSpecs"].items():
            yield from (f"{role.lower()}-{index}" for index in range(spec["replicas"]))

    def _replicas(self, role: str, count: int, policy: str | None, container: Object) -> None:
        spec: Object = {"replicas": count, "template": self._template(container)}
        if policy is None:
            policy = self.dice.choice([None, "Always", "OnFailure", "Never", "ExitCode"])
        if policy is not None:
            spec["restartPolicy"] = policy
        self.spec["pytorchReplicaSpecs"][role] = spec

    def _template(self, container: Object) -> Object:
        dice = self.dice
        fields: Object = {"command": ["python", "/train.py"], "args": ["--epochs", str(dice.randint(1, 9))]}
        if dice.random() < 0.3:
            fields["env"] = [{"name": "LR", "value": "0.1"}, {"name": "RANK", "value": "mine"}]
        if dice.random() < 0.3:
            fields["resources"] = {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}
        if dice.random() < 0.3:
            fields["ports"] = [{"name": "pytorchjob-port", "containerPort": dice.choice([23456, 30000])}]
        pod = template(**{**fields, **container})
        if dice.random() < 0.4:
            pod["metadata"] = {
                "labels": {"app": "digits", "group-name": "mine", "training.kubeflow.org/job-name": "mine"},
                "annotations": {"sidecar.istio.io/inject": "false"},
            }
        if dice.random() < 0.3:
            pod["spec"]["initContainers"] = [{"name": "fetch", "image": "example/fetch:1"}]
        if dice.random() < 0.3:
            pod["spec"]["containers"].append({"name": "logs", "image": "example/logs:1"})
        if dice.random() < 0.3:
            pod["spec"].update(nodeSelector={"gpu": "yes"}, volumes=[{"name": "scratch", "emptyDir": {}}])
        if dice.random() < 0.3:
            pod["spec"].update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet", terminationGracePeriodSeconds=5)
        if dice.random() < 0.3:
            pod["spec"].update(tolerations=[{"operator": "Exists"}], securityContext={"runAsUser": 1000, "fsGroup": 1})
        return pod


Themes = Mapping[str, Callable[[CaseBuilder], None]]
"""By name: a function that builds a case of the theme."""


def generated_cases(count: int, *, seed: int, themes: Themes) -> list[Case]:
    """The first `count` cases of a seed. A larger count begins with the same cases."""
    return [_case(number, random.Random(f"{seed}/{number}"), themes) for number in range(count)]


def _case(number: int, dice: random.Random, themes: Themes) -> Case:
    theme = list(themes)[number % len(themes)]
    case = CaseBuilder(f"case-{number:02d}", dice)
    themes[theme](case)
    return Case(case.name, theme, case.manifest, case.steps)
