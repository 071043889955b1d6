"""One case of the differential test: a job and what happens to it, the same for both operators."""

from dataclasses import dataclass, field

from trainwright.api.kinds import Kind
from trainwright.objects import Object

# Actions on a job or on one of its pods between two comparisons. A pod is named by role and index: `worker-0`.


@dataclass(frozen=True)
class Start:
    """Every pending pod is bound and runs."""


@dataclass(frozen=True)
class Admit:
    """The gang scheduler admits the job's PodGroup."""


@dataclass(frozen=True)
class Restarted:
    """The kubelet has restarted the pod's containers so many times."""

    pod: str
    times: int


@dataclass(frozen=True)
class Exit:
    """All containers of the pod terminate with this exit code."""

    pod: str
    code: int = 0


@dataclass(frozen=True)
class Evict:
    """The kubelet evicts the pod because its node is short of memory."""

    pod: str


@dataclass(frozen=True)
class Stuck:
    """The pod's containers wait with this reason."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True)
class Unschedulable:
    """The scheduler finds no node for the pod."""

    pod: str


@dataclass(frozen=True)
class SidecarDied:
    """The second container has terminated with an error, the first one runs on."""

    pod: str


@dataclass(frozen=True)
class Delete:
    """A user deletes the pod. With `slowly` it stays terminating until the next `Start`."""

    pod: str
    slowly: bool = False


@dataclass(frozen=True)
class DeleteService:
    """A user deletes the Service of a pod."""

    pod: str


@dataclass(frozen=True)
class Change:
    """A user changes the job's spec with a merge patch."""

    spec: Object


PodReport = Restarted | Exit | Evict | Stuck | Unschedulable | SidecarDied
Action = Start | Admit | PodReport | Delete | DeleteService | Change
Step = tuple[Action, ...]


@dataclass
class Case:
    """One job and the steps of its life. After each step both operators settle and are compared."""

    name: str
    kind: Kind
    theme: str
    manifest: Object
    steps: list[Step] = field(default_factory=list)

    @property
    def run_policy(self) -> Object:
        policy: Object = self.manifest["spec"].get("runPolicy", {})
        return policy

    @property
    def roles(self) -> Object:
        """The replica specs by role."""
        roles: Object = self.manifest["spec"][self.kind.replicas_field]
        return roles

    def does(self, kind: type[Action]) -> bool:
        """True if one of its steps has an action of this kind."""
        return any(isinstance(action, kind) for step in self.steps for action in step)
