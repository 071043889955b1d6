"""The kinds of jobs as data: one row says all in which a kind differs from the others.

A new kind is a row here and a module in `trainwright.engine.frameworks` for its environment.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainwright.api.kinds.pytorch import PyTorchFields, check_pytorch, complete_pytorch, deprecated_in_pytorch
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError
from trainwright.objects.metadata import View
from trainwright.objects.resources import Resource

GROUP = "kubeflow.org"
VERSION = "v1"
OPERATOR = "kubeflow.org/training-operator"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"


class NoFields(View, frozen=True):
    """For kinds whose spec has nothing but `runPolicy` and the replicas."""


def nothing_to_complete(spec: Object) -> Object:
    return spec


def nothing_to_check(spec: Object) -> Iterable[FieldError]:
    _ = spec
    return ()


def nothing_deprecated(spec: Object) -> Iterable[str]:
    _ = spec
    return ()


@dataclass(frozen=True, slots=True)
class Role:
    """One replica type. `exactly` and `at_least` bound the number that admission accepts."""

    name: str
    exactly: int | None = None
    at_least: int | None = None
    default_replicas: int = 1

    @property
    def label(self) -> str:
        """How object names and labels spell it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    plural: str
    framework: str
    replicas_field: str
    roles: tuple[Role, ...]
    """In the order in which they are created and judged: the role that decides success comes first."""
    container: str
    """The container that trains: it carries the port, its exit code is the pod's."""
    port_name: str
    port: int
    default_restart_policy: str
    earlier_name: str = ""
    """The word that the first operator of this kind had in its labels; empty if there was none."""
    scaled_role: str | None = None
    """The role that `kubectl scale` changes; None: no scale subresource."""
    columns: tuple[str, ...] = ("State", "Age")
    fields: type[View] = NoFields
    """The kind's own fields of `spec`."""
    complete: Callable[[Object], Object] = nothing_to_complete
    """Fills in the kind's own fields: spec with completed replicas -> spec."""
    check: Callable[[Object], Iterable[FieldError]] = nothing_to_check
    """What is wrong with the kind's own fields; types and the spelling of roles are right already."""
    deprecations: Callable[[Object], Iterable[str]] = nothing_deprecated
    """Which of the kind's own fields users should replace; types are right already."""

    roles_by_label: dict[str, Role] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "roles_by_label", {role.label: role for role in self.roles})

    @property
    def singular(self) -> str:
        return self.name.lower()

    @property
    def controller(self) -> str:
        """The operator's name for this kind in labels, events and metrics."""
        return f"{self.singular}-controller"

    @property
    def resource(self) -> Resource:
        return Resource(GROUP, VERSION, self.plural, self.name)

    def role(self, name: str) -> Role | None:
        """The role of that name, in whatever letter case."""
        return self.roles_by_label.get(name.lower())


PYTORCH = Kind(
    name="PyTorchJob",
    plural="pytorchjobs",
    framework="pytorch",
    replicas_field="pytorchReplicaSpecs",
    roles=(Role("Master", exactly=1), Role("Worker", at_least=1)),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    default_restart_policy="OnFailure",
    earlier_name="pytorch",
    scaled_role="Worker",
    fields=PyTorchFields,
    complete=complete_pytorch,
    check=check_pytorch,
    deprecations=deprecated_in_pytorch,
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in (PYTORCH,)}
