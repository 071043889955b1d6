"""Which jobs are refused, with upstream's rules and upstream's messages.

`validate` is what an admission webhook says about a new manifest. `unworkable` is the part of it that the operator
insists on: what defaulting repairs (letter case, a missing number) or what `kubectl scale` may do to a running job
(no workers at all) is not among it.
"""

from collections.abc import Iterator

from trainwright.api.errors import FieldError, forbidden, invalid, not_supported, required
from trainwright.api.kinds import MULTIKUEUE, OPERATOR, Kind
from trainwright.api.shape import shape_errors
from trainwright.objects import Object
from trainwright.objects.names import dns_1035_label_problem

MAX_REPLICAS = 100_000
"""More pods of one role than any cluster holds: a slip of the keyboard, refused before it costs anything."""
_MAX_NAME = 63
_RESTART_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")


def validate(raw: Object, kind: Kind) -> list[FieldError]:
    """Everything that admission refuses a new manifest for, in a fixed order."""
    if errors := shape_errors(raw, kind):
        return errors
    spec = raw.get("spec") or {}
    errors = [*_name(raw), *_managed_by(spec), *kind.check(spec)]
    for key, replica in _replicas(spec, kind).items():
        path = f"spec.{kind.replicas_field}[{key}]"
        errors += [*_role(key, path, kind), *_template(replica, path, kind), *_restart_policy(replica, path)]
        errors += [*_admitted_number(key, replica, path, kind), *_workable_number(replica, path)]
    return [*errors, *_any_replicas(spec, kind), *_child_names(raw, kind)]


def unworkable(raw: Object, kind: Kind) -> list[FieldError]:
    """Why no engine could run this job; expects right types and defaults filled in."""
    spec = raw.get("spec") or {}
    errors = [*_name(raw), *kind.check(spec)]
    for key, replica in _replicas(spec, kind).items():
        path = f"spec.{kind.replicas_field}[{key}]"
        errors += [*_role(key, path, kind), *_template(replica, path, kind), *_restart_policy(replica, path)]
        errors += [*_exact_number(key, replica, path, kind), *_workable_number(replica, path)]
    return [*errors, *_any_replicas(spec, kind), *_child_names(raw, kind)]


def _replicas(spec: Object, kind: Kind) -> Object:
    """Null means absent, as it does to the API server."""
    replicas = spec.get(kind.replicas_field) or {}
    return {key: replica for key, replica in replicas.items() if replica is not None}


def _name(raw: Object) -> Iterator[FieldError]:
    name = raw["metadata"]["name"]
    if problem := dns_1035_label_problem(name):
        yield invalid("metadata.name", name, f"should match: {problem}")


def _managed_by(spec: Object) -> Iterator[FieldError]:
    manager = (spec.get("runPolicy") or {}).get("managedBy")
    if manager is not None and manager not in {OPERATOR, MULTIKUEUE}:
        yield not_supported("spec.runPolicy.managedBy", manager, (OPERATOR, MULTIKUEUE))


def _any_replicas(spec: Object, kind: Kind) -> Iterator[FieldError]:
    if not _replicas(spec, kind):
        yield required(f"spec.{kind.replicas_field}", "must be required")


def _role(key: str, path: str, kind: Kind) -> Iterator[FieldError]:
    names = [role.name for role in kind.roles]
    if key not in names:
        yield not_supported(path, key, names)


def _template(replica: Object, path: str, kind: Kind) -> Iterator[FieldError]:
    containers = ((replica.get("template") or {}).get("spec") or {}).get("containers") or []
    path = f"{path}.template.spec.containers"
    if not containers:
        yield required(path, "must be specified")
    for position, container in enumerate(containers):
        if not container.get("image"):
            yield required(f"{path}[{position}].image", "must be required")
    if all(container.get("name") != kind.container for container in containers):
        yield required(path, f"must have at least one container with name {kind.container}")


def _restart_policy(replica: Object, path: str) -> Iterator[FieldError]:
    policy = replica.get("restartPolicy")
    if policy and policy not in _RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)


def _admitted_number(key: str, replica: Object, path: str, kind: Kind) -> Iterator[FieldError]:
    yield from _exact_number(key, replica, path, kind)
    role, number = kind.role(key), replica.get("replicas")
    if role and role.at_least is not None and number is not None and number < role.at_least:
        yield forbidden(f"{path}.replicas", f"must be at least {role.at_least}")


def _exact_number(key: str, replica: Object, path: str, kind: Kind) -> Iterator[FieldError]:
    role = kind.role(key)
    if role and role.exactly is not None and replica.get("replicas") != role.exactly:
        yield forbidden(f"{path}.replicas", f"must be {role.exactly}")


def _workable_number(replica: Object, path: str) -> Iterator[FieldError]:
    number = replica.get("replicas") or 0
    if number < 0:
        yield invalid(f"{path}.replicas", number, "should be a non-negative integer")
    if number > MAX_REPLICAS:
        yield invalid(f"{path}.replicas", number, f"must be less than or equal to {MAX_REPLICAS}")


def _child_names(raw: Object, kind: Kind) -> Iterator[FieldError]:
    """A pod and its service are called `<job>-<role>-<index>`, and a service's name ends at 63 characters."""
    name = raw["metadata"]["name"]
    if len(name) > _MAX_NAME:
        return
    children = [
        f"{name}-{role.label}-{max(replica.get('replicas') or 1, 1) - 1}"
        for key, replica in _replicas(raw.get("spec") or {}, kind).items()
        if (role := kind.role(key))
    ]
    longest = max(children, key=len, default="")
    if len(longest) > _MAX_NAME:
        excess = len(longest) - _MAX_NAME
        yield invalid(
            "metadata.name",
            name,
            f"must be shorter by {excess} characters: pod and service {longest} would have {len(longest)}, "
            f"and names end at {_MAX_NAME}",
        )
