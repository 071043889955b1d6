"""Which jobs are refused, with upstream's rules and upstream's messages.

`validate` is what admission says about a manifest. `unworkable` is the part of it that the operator insists on: what
defaulting repairs (a missing number), what upstream's operator runs all the same (a word that is no cleanPodPolicy)
and what `kubectl scale` may do to a running job (no workers at all) is not among it.
"""

from collections.abc import Iterator

from trainwright.api.errors import invalid, not_supported
from trainwright.api.field_types import shape_errors
from trainwright.api.kinds import MULTIKUEUE, OPERATOR, Kind
from trainwright.api.legacy import ambiguous_roles, canonical_roles
from trainwright.api.types import CLEAN_POD_POLICIES, MAX_REPLICAS, RESTART_POLICIES
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, required
from trainwright.objects.names import dns_1035_label_problems
from trainwright.objects.paths import value_at
from trainwright.objects.quantities import QuantityError, parse_quantity

_MAX_NAME = 63
_MANAGED_BY = "spec.runPolicy.managedBy"
_SCHEDULING = "spec.runPolicy.schedulingPolicy"


def validate(raw: Object, kind: Kind, old: Object | None = None) -> list[FieldError]:
    """Everything that admission refuses a manifest for, in a fixed order.

    With `old` it is an update: some fields cannot be changed, and what was wrong before is no reason to refuse it. A
    job that was scaled to no workers, for example, can still be annotated.
    """
    errors = _judge(raw, kind)
    if old is None:
        return errors
    before = _judge(old, kind)
    return [*_changed(raw, old), *(error for error in errors if error not in before)]


def unworkable(raw: Object, completed: Object, kind: Kind) -> list[FieldError]:
    """Why no engine could run this job, whose types are right; `completed` is its spec with the defaults filled in."""
    spec = raw.get("spec") or {}
    errors = [*_name(raw), *_scheduling(spec), *_roles_and_fields(spec, kind)]
    for key, replica in _replicas(completed, kind).items():
        path = f"spec.{kind.replicas_field}[{key}]"
        errors += [*_role(key, path, kind), *_template(replica, path, kind)]
        errors += [*_exact_number(key, replica, path, kind)] or [*_workable_number(replica, path)]
        errors += _restart_policy(replica, path)
    return [*errors, *_child_names(raw, completed, kind)]


def _judge(raw: Object, kind: Kind) -> list[FieldError]:
    if errors := shape_errors(raw, kind):
        return errors
    spec = raw.get("spec") or {}
    errors = [*_name(raw), *_managed_by(spec), *_clean_pod_policy(spec), *_scheduling(spec)]
    errors += _roles_and_fields(spec, kind)
    for key, replica in _replicas(spec, kind).items():
        path = f"spec.{kind.replicas_field}[{key}]"
        errors += [*_role(key, path, kind), *_template(replica, path, kind)]
        errors += [*_admitted_number(key, replica, path, kind)] or [*_workable_number(replica, path)]
        errors += _restart_policy(replica, path)
    return [*errors, *_child_names(raw, spec, kind)]


def _changed(new: Object, old: Object) -> Iterator[FieldError]:
    manager = value_at(new, "spec", "runPolicy", "managedBy")
    if manager != value_at(old, "spec", "runPolicy", "managedBy"):
        yield invalid(_MANAGED_BY, manager, "field is immutable")
    place = ("spec", "runPolicy", "schedulingPolicy", "queue")
    queue, queue_before = value_at(new, *place), value_at(old, *place)
    if queue is not None and queue_before is not None and queue != queue_before:
        yield invalid(f"{_SCHEDULING}.queue", queue, f"{_SCHEDULING}.queue is immutable")


def _replicas(spec: Object, kind: Kind) -> Object:
    """Null means absent, as it does to the API server."""
    replicas = spec.get(kind.replicas_field) or {}
    return {key: replica for key, replica in replicas.items() if replica is not None}


def _name(raw: Object) -> Iterator[FieldError]:
    name = raw["metadata"]["name"]
    if problems := dns_1035_label_problems(name):
        yield invalid("metadata.name", name, f"should match: {','.join(problems)}")


def _managed_by(spec: Object) -> Iterator[FieldError]:
    manager = value_at(spec, "runPolicy", "managedBy")
    if manager is not None and manager not in {OPERATOR, MULTIKUEUE}:
        yield not_supported(_MANAGED_BY, manager, (OPERATOR, MULTIKUEUE))


def _clean_pod_policy(spec: Object) -> Iterator[FieldError]:
    for holder, path in ((spec.get("runPolicy"), "spec.runPolicy"), (spec, "spec")):
        policy = value_at(holder, "cleanPodPolicy")
        if policy is not None and policy not in CLEAN_POD_POLICIES:
            yield not_supported(f"{path}.cleanPodPolicy", policy, CLEAN_POD_POLICIES)


def _scheduling(spec: Object) -> Iterator[FieldError]:
    policy = value_at(spec, "runPolicy", "schedulingPolicy") or {}
    for field in ("minAvailable", "scheduleTimeoutSeconds"):
        number = policy.get(field)
        if number is not None and number < 0:
            yield invalid(f"{_SCHEDULING}.{field}", number, "should be a non-negative integer")
    for resource, amount in (policy.get("minResources") or {}).items():
        if problem := _quantity_problem(amount):
            yield invalid(f"{_SCHEDULING}.minResources[{resource}]", amount, problem)


def _quantity_problem(amount: int | str) -> str | None:
    try:
        negative = parse_quantity(amount) < 0
    except QuantityError:
        return "must be a quantity: a number and a unit such as 500m, 2 or 1.5Gi"
    return "must be greater than or equal to 0" if negative else None


def _roles_and_fields(spec: Object, kind: Kind) -> Iterator[FieldError]:
    """The kind's own rules are about what the user wrote, under whatever spelling of the roles."""
    replicas = _replicas(spec, kind)
    yield from kind.check({**spec, kind.replicas_field: canonical_roles(replicas, kind)})
    if not replicas:
        yield required(f"spec.{kind.replicas_field}", "must be required")
    yield from ambiguous_roles(replicas, kind)


def _role(key: str, path: str, kind: Kind) -> Iterator[FieldError]:
    if kind.role(key) is None:
        yield not_supported(path, key, [role.name for role in kind.roles])


def _template(replica: Object, path: str, kind: Kind) -> Iterator[FieldError]:
    containers = value_at(replica, "template", "spec", "containers") or []
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
    if policy and policy not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)


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


def _child_names(raw: Object, spec: Object, kind: Kind) -> Iterator[FieldError]:
    """A pod and its service are called `<job>-<role>-<index>`, and a service's name ends at 63 characters."""
    name = raw["metadata"]["name"]
    if len(name) > _MAX_NAME:
        return
    children = [
        f"{name}-{role.label}-{max(replica.get('replicas') or 1, 1) - 1}"
        for key, replica in _replicas(spec, kind).items()
        if (role := kind.role(key))
    ]
    longest = max(children, key=len, default="")
    if len(longest) > _MAX_NAME:
        room = _MAX_NAME - (len(longest) - len(name))
        yield invalid(
            "metadata.name",
            name,
            f"must be no more than {room} characters: pod and service {longest} would have {len(longest)}, "
            f"and names end at {_MAX_NAME}",
        )
