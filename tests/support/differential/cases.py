"""A PyTorchJob and its course of life, as both operators of the differential test are given it."""

from dataclasses import dataclass, field

from trainwright.objects import Object

# What is done to a job or to one of its pods between two looks. A pod is named by role and index: `worker-0`.


@dataclass(frozen=True)
class Start:
    """Every pod that waits is bound and runs."""


@dataclass(frozen=True)
class Admit:
    """The gang scheduler lets the job's group in."""


@dataclass(frozen=True)
class Restarted:
    """The kubelet has restarted the pod's containers so many times, in place."""

    pod: str
    times: int


@dataclass(frozen=True)
class Exit:
    """All containers of the pod end with this code."""

    pod: str
    code: int = 0


@dataclass(frozen=True)
class Evict:
    """The node ends the pod because it is short of memory."""

    pod: str


@dataclass(frozen=True)
class Stuck:
    """The pod cannot start, and its container says why."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True)
class Unschedulable:
    """No node has room for the pod, says the scheduler."""

    pod: str


@dataclass(frozen=True)
class SidecarDied:
    """The first container goes on, the second one has ended with an error."""

    pod: str


@dataclass(frozen=True)
class Delete:
    """Somebody deletes the pod. With `slowly` its processes are still there when we look, and gone at the next look."""

    pod: str
    slowly: bool = False


@dataclass(frozen=True)
class DeleteService:
    """Somebody deletes the service of a pod."""

    pod: str


@dataclass(frozen=True)
class Change:
    """Somebody changes the job's spec, by a merge patch."""

    spec: Object


PodReport = Restarted | Exit | Evict | Stuck | Unschedulable | SidecarDied
Action = Start | Admit | PodReport | Delete | DeleteService | Change
Step = tuple[Action, ...]


@dataclass
class Case:
    """One job and its life. Between the steps both operators come to rest, and are compared."""

    name: str
    theme: str
    manifest: Object
    steps: list[Step] = field(default_factory=list)

    @property
    def run_policy(self) -> Object:
        policy: Object = self.manifest["spec"].get("runPolicy", {})
        return policy

    def does(self, kind: type[Action]) -> bool:
        """Whether something of this kind happens in its life."""
        return any(isinstance(action, kind) for step in self.steps for action in step)
