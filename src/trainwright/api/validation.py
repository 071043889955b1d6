"""Validation of jobs, with upstream's rules and upstream's messages.

Admission uses `validate`. The operator uses `fatal_errors`, which has fewer rules: defaults fill in a missing number of
replicas, upstream's operator runs jobs with an unknown cleanPodPolicy, and `kubectl scale` may set the workers of a
running job to 0.
"""

from collections.abc import Callable, Iterable, Iterator

from trainwright.api.errors import InvalidJob, invalid, not_supported
from trainwright.api.kinds import MULTIKUEUE, OPERATOR, Kind, ReplicaSpecs, Unvalidated
from trainwright.api.legacy import ambiguous_roles, canonical_roles
from trainwright.api.parsing import Manifest, parse
from trainwright.api.types import CLEAN_POD_POLICIES, MAX_REPLICAS, RESTART_POLICIES, ReplicaSpec, SchedulingPolicy
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, required
from trainwright.objects.names import dns_1035_label_problems
from trainwright.objects.paths import value_at
from trainwright.objects.quantities import QuantityError, parse_quantity

_MAX_NAME = 63
_MANAGED_BY = "spec.runPolicy.managedBy"
_SCHEDULING = "spec.runPolicy.schedulingPolicy"

_NumberCheck = Callable[[str, ReplicaSpec, str, Kind], Iterable[FieldError]]


def validate(raw: Object, kind: Kind, old: Object | None = None) -> list[FieldError]:
    """All errors for which admission rejects a manifest, in a fixed order.

    With `old` it is an update: some fields are immutable, and errors that `old` has too are left out. So a job that was
    scaled to 0 workers can still be annotated.
    """
    errors = _errors_of(raw, kind)
    if old is None:
        return errors
    before = _errors_of(old, kind)
    return [*_changed(raw, old), *(error for error in errors if error not in before)]


def fatal_errors(manifest: Manifest, completed: ReplicaSpecs, kind: Kind) -> list[FieldError]:
    """The errors that make it impossible to run the job. `completed` are its replicas with defaults."""
    errors = [*_name(manifest), *_scheduling(manifest), *_roles_and_fields(manifest, kind)]
    return [*errors, *_replicas(manifest, completed, kind, _exact_number)]


def _errors_of(raw: Object, kind: Kind) -> list[FieldError]:
    try:
        manifest = parse(raw, kind)
    except InvalidJob as error:
        return list(error.errors)
    errors = [*_name(manifest), *_managed_by(manifest), *_clean_pod_policy(manifest), *_scheduling(manifest)]
    errors += _roles_and_fields(manifest, kind)
    return [*errors, *_replicas(manifest, manifest.replicas, kind, _admitted_number)]


def _replicas(
    manifest: Manifest, replicas: ReplicaSpecs, kind: Kind, check_number: _NumberCheck
) -> Iterator[FieldError]:
    for key, replica in replicas.items():
        path = f"spec.{kind.replicas_field}[{key}]"
        yield from _role(key, path, kind)
        yield from _template(key, replica, path, kind)
        yield from [*check_number(key, replica, path, kind)] or [*_number_in_range(replica, path)]
        yield from _restart_policy(replica, path)
    yield from _child_names(manifest, replicas, kind)


def _changed(new: Object, old: Object) -> Iterator[FieldError]:
    manager = value_at(new, "spec", "runPolicy", "managedBy")
    if manager != value_at(old, "spec", "runPolicy", "managedBy"):
        yield invalid(_MANAGED_BY, manager, "field is immutable")
    place = ("spec", "runPolicy", "schedulingPolicy", "queue")
    queue, queue_before = value_at(new, *place), value_at(old, *place)
    if queue is not None and queue_before is not None and queue != queue_before:
        yield invalid(f"{_SCHEDULING}.queue", queue, f"{_SCHEDULING}.queue is immutable")


def _name(manifest: Manifest) -> Iterator[FieldError]:
    name = manifest.metadata.name
    if problems := dns_1035_label_problems(name):
        yield invalid("metadata.name", name, f"should match: {','.join(problems)}")


def _managed_by(manifest: Manifest) -> Iterator[FieldError]:
    manager = manifest.run_policy.managed_by
    if manager is not None and manager not in {OPERATOR, MULTIKUEUE}:
        yield not_supported(_MANAGED_BY, manager, (OPERATOR, MULTIKUEUE))


def _clean_pod_policy(manifest: Manifest) -> Iterator[FieldError]:
    for holder, path in ((manifest.run_policy, "spec.runPolicy"), (manifest.earlier_run_policy, "spec")):
        policy = holder.clean_pod_policy
        if policy is not None and policy not in CLEAN_POD_POLICIES:
            yield not_supported(f"{path}.cleanPodPolicy", policy, CLEAN_POD_POLICIES)


def _scheduling(manifest: Manifest) -> Iterator[FieldError]:
    policy = manifest.run_policy.scheduling_policy or SchedulingPolicy()
    for field, number in (
        ("minAvailable", policy.min_available),
        ("scheduleTimeoutSeconds", policy.schedule_timeout_seconds),
    ):
        if number is not None and number < 0:
            yield invalid(f"{_SCHEDULING}.{field}", number, "should be a non-negative integer")
    for resource, amount in (policy.min_resources or {}).items():
        if problem := _quantity_problem(amount):
            yield invalid(f"{_SCHEDULING}.minResources[{resource}]", amount, problem)


def _quantity_problem(amount: int | str) -> str | None:
    try:
        negative = parse_quantity(amount) < 0
    except QuantityError:
        return "must be a quantity: a number and a unit such as 500m, 2 or 1.5Gi"
    return "must be greater than or equal to 0" if negative else None


def _roles_and_fields(manifest: Manifest, kind: Kind) -> Iterator[FieldError]:
    """The kind's own rules apply to the manifest without defaults, in any spelling of the roles."""
    replicas = canonical_roles(manifest.replicas, kind)
    yield from kind.check(Unvalidated(manifest.metadata, manifest.fields, replicas, kind.cluster_domain))
    if not manifest.replicas:
        yield required(f"spec.{kind.replicas_field}", "must be required")
    yield from ambiguous_roles(manifest.replicas, kind)


def _role(key: str, path: str, kind: Kind) -> Iterator[FieldError]:
    if kind.role(key) is None:
        yield not_supported(path, key, [role.name for role in kind.roles])


def _template(key: str, replica: ReplicaSpec, path: str, kind: Kind) -> Iterator[FieldError]:
    containers = value_at(replica.template, "spec", "containers") or []
    path = f"{path}.template.spec.containers"
    if not containers:
        yield required(path, "must be specified")
    for position, container in enumerate(containers):
        if not container.get("image"):
            yield required(f"{path}[{position}].image", "must be required")
    role = kind.role(key)
    name = kind.container_of(role) if role else kind.container
    if name and all(container.get("name") != name for container in containers):
        yield required(path, kind.missing_container.format(name=name))


def _restart_policy(replica: ReplicaSpec, path: str) -> Iterator[FieldError]:
    policy = replica.restart_policy
    if policy and policy not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)


def _admitted_number(key: str, replica: ReplicaSpec, path: str, kind: Kind) -> Iterator[FieldError]:
    yield from _exact_number(key, replica, path, kind)
    role, number = kind.role(key), replica.replicas
    if role and role.at_least is not None and number is not None and number < role.at_least:
        yield forbidden(f"{path}.replicas", f"must be at least {role.at_least}")


def _exact_number(key: str, replica: ReplicaSpec, path: str, kind: Kind) -> Iterator[FieldError]:
    role = kind.role(key)
    if role is None or (role.number_optional and replica.replicas is None):
        return
    if role.exactly is not None and replica.replicas != role.exactly:
        yield forbidden(f"{path}.replicas", f"must be {role.exactly}")


def _number_in_range(replica: ReplicaSpec, path: str) -> Iterator[FieldError]:
    number = replica.replicas or 0
    if number < 0:
        yield invalid(f"{path}.replicas", number, "should be a non-negative integer")
    if number > MAX_REPLICAS:
        yield invalid(f"{path}.replicas", number, f"must be less than or equal to {MAX_REPLICAS}")


def _child_names(manifest: Manifest, replicas: ReplicaSpecs, kind: Kind) -> Iterator[FieldError]:
    """Pods and Services are named after the job. The name of a Service has at most 63 characters, and so has the
    hostname of a pod: the kubelet would cut the index from it."""
    name = manifest.metadata.name
    if len(name) > _MAX_NAME:
        return
    children = {
        role.child_name(name, max(replica.replicas or 1, 1) - 1): "pod and service" if role.has_service else "pod"
        for key, replica in replicas.items()
        if (role := kind.role(key))
    }
    longest = max(children, key=len, default="")
    if len(longest) > _MAX_NAME:
        room = _MAX_NAME - (len(longest) - len(name))
        yield invalid(
            "metadata.name",
            name,
            f"must be no more than {room} characters: {children[longest]} {longest} would have {len(longest)}, "
            f"and the maximum is {_MAX_NAME}",
        )
