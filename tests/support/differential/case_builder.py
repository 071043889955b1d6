"""Generates cases of one kind from a seed: a theme sets what a case is about, the rest is random.

Themes take turns, so that a small sample covers many rules and a large one covers each of them in many forms.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.support.differential.cases import Action, Case, Exit, Step
from tests.support.objects.jobs import template
from trainwright.api.kinds import Kind
from trainwright.objects import Object

_LEADERS = ("Chief", "Master", "Launcher")
_WITHOUT_LEADER = 0.4
"""The share of cases without a leader, where a kind permits it."""
_OWN_VARIABLE = {
    "TFJob": "TF_CONFIG",
    "PaddleJob": "PADDLE_NNODES",
    "JAXJob": "PROCESS_ID",
    "MPIJob": "I_MPI_HYDRA_BOOTSTRAP",
}
"""A variable that the operator sets too; of other kinds RANK."""


class CaseBuilder:
    """The fields that a theme does not set get random values.

    A leader is the role beside the workers that decides about the job: Chief, Master or Launcher.
    """

    def __init__(self, name: str, kind: Kind, dice: random.Random) -> None:
        self.name = name
        self.kind = kind
        self.dice = dice
        self.steps: list[Step] = []
        self.spec: Object = {kind.replicas_field: {}}
        if kind.name == "PyTorchJob" and dice.random() < 0.4:
            self.spec["nprocPerNode"] = dice.choice(["auto", "cpu", "gpu", "1", "4"])
        if policy := dice.choice([None, None, "None", "Running", "All"]):
            self.run_policy(cleanPodPolicy=policy)
        if dice.random() < 0.3:
            self.run_policy(ttlSecondsAfterFinished=3600)

    @property
    def manifest(self) -> Object:
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": self.kind.name,
            "metadata": {"name": self.name, "labels": {"team": "vision"}, "annotations": {"example.com/note": "mine"}},
            "spec": self.spec,
        }

    @property
    def roles(self) -> Object:
        """The replica specs by role."""
        roles: Object = self.spec[self.kind.replicas_field]
        return roles

    @property
    def decider(self) -> str:
        """The name of the pod whose success ends the job, if it is the last one of its role."""
        leader = next((role for role in self.roles if role in _LEADERS), None)
        return self._pod(leader, 0) if leader else "worker-0"

    def run_policy(self, **fields: Any) -> None:
        self.spec.setdefault("runPolicy", {}).update(fields)

    def leader(self, *, policy: str | None = None, **container: Any) -> None:
        """Of a kind without leaders nothing."""
        leaders = [role.name for role in self.kind.roles if role.name in _LEADERS]
        if leaders:
            self.replicas(self.dice.choice(leaders), 1, policy=policy, **container)

    def workers(self, count: int | None = None, *, policy: str | None = None, **container: Any) -> int:
        """With a leader if the kind demands one."""
        if self.kind.name in {"XGBoostJob", "MPIJob"} and not self.roles:
            self.leader(policy=policy)
        number = self.dice.randint(1, 3) if count is None else count
        self.replicas("Worker", number, policy=policy, **container)
        return number

    def replicas(self, role: str, count: int, *, policy: str | None = None, **container: Any) -> None:
        spec: Object = {"replicas": count, "template": self._template(container)}
        if policy is None:
            policy = self.dice.choice([None, "Always", "OnFailure", "Never", "ExitCode"])
        if policy is not None:
            spec["restartPolicy"] = policy
        self.roles[role] = spec

    def any_shape(self, *, policy: str | None = None) -> str:
        """With or without a leader and further roles; returns the name of a pod, mostly of a worker."""
        if self.dice.random() >= _WITHOUT_LEADER:
            self.leader(policy=policy)
        worker = f"worker-{self.dice.randrange(self.workers(policy=policy))}"
        further = [role.name for role in self.kind.roles if role.name not in (*_LEADERS, "Worker")]
        if further and self.dice.random() < 0.6:
            self.replicas(self.dice.choice(further), 1, policy=policy)
        return self.dice.choice(list(self.pods())) if self.dice.random() < 0.3 else worker

    def template_of(self, role: str) -> Object:
        pod: Object = self.roles[role]["template"]
        return pod

    def change(self, role: str, content: Object | None) -> Object:
        """A merge patch of one role for the action `Change`."""
        return {self.kind.replicas_field: {role: content}}

    def then(self, *actions: Action) -> None:
        self.steps.append(actions)

    def succeed(self) -> None:
        """All pods succeed, the leader before or after the others."""
        pods = list(self.pods())
        if self.dice.random() < 0.5:
            pods.reverse()
        for pod in pods:
            self.then(Exit(pod))

    def pods(self) -> Iterator[str]:
        for role, spec in self.roles.items():
            yield from (self._pod(role, index) for index in range(spec["replicas"]))

    def _pod(self, role: str, index: int) -> str:
        known = self.kind.role(role)
        return f"{role.lower()}-{index}" if known is None or known.indexed else role.lower()

    def _template(self, container: Object) -> Object:
        dice = self.dice
        fields: Object = {"command": ["python", "/train.py"], "args": ["--epochs", str(dice.randint(1, 9))]}
        if dice.random() < 0.3:
            own = _OWN_VARIABLE.get(self.kind.name, "RANK")
            fields["env"] = [{"name": "LR", "value": "0.1"}, {"name": own, "value": "mine"}]
        if dice.random() < 0.3:
            fields["resources"] = {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}
        if dice.random() < 0.3 and self.kind.port:
            fields["ports"] = [{"name": self.kind.port_name, "containerPort": dice.choice([self.kind.port, 30000])}]
        pod = template(**{"name": self.kind.container or "main", **fields, **container})
        if dice.random() < 0.4:
            pod["metadata"] = {
                "labels": {"app": "digits", "group-name": "mine", "training.kubeflow.org/job-name": "mine"},
                "annotations": {"sidecar.istio.io/inject": "false"},
            }
        if dice.random() < 0.3:
            pod["spec"]["initContainers"] = [{"name": "fetch", "image": "example/fetch:1"}]
        if dice.random() < 0.3:
            pod["spec"]["containers"].insert(dice.choice([0, 1]), {"name": "logs", "image": "example/logs:1"})
        if dice.random() < 0.3:
            pod["spec"].update(nodeSelector={"gpu": "yes"}, volumes=[{"name": "scratch", "emptyDir": {}}])
        if dice.random() < 0.3:
            pod["spec"].update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet", terminationGracePeriodSeconds=5)
        if dice.random() < 0.3:
            pod["spec"].update(tolerations=[{"operator": "Exists"}], securityContext={"runAsUser": 1000, "fsGroup": 1})
        return pod


Themes = Mapping[str, Callable[[CaseBuilder], None]]
"""By name: a function that builds a case of the theme."""


def generated_cases(kind: Kind, count: int, *, seed: int, themes: Themes) -> list[Case]:
    """The first `count` cases of a seed. A larger count begins with the same cases."""
    return [_case(kind, number, random.Random(f"{seed}/{kind.name}/{number}"), themes) for number in range(count)]


def _case(kind: Kind, number: int, dice: random.Random, themes: Themes) -> Case:
    theme = list(themes)[number % len(themes)]
    case = CaseBuilder(f"{kind.framework}-{number:02d}", kind, dice)
    themes[theme](case)
    return Case(case.name, kind, theme, case.manifest, case.steps)
