"""Manifests of earlier operators: they are converted to the current form, with a deprecation warning.

The first operators had the run policy directly under `spec` and accepted role names in any letter case.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from trainwright.api.kinds import Kind, ReplicaSpecs
from trainwright.api.parsing import Manifest
from trainwright.api.types import CLEAN_POD_POLICIES, EarlierRunPolicy, ReplicaSpec, RunPolicy
from trainwright.objects.field_errors import FieldError, forbidden, quoted

_EARLIER_FIELDS = {field.name: field.encode_name for field in msgspec.structs.fields(EarlierRunPolicy)}
"""The field in manifests by its Python name."""


def merged_run_policy(current: RunPolicy, earlier: EarlierRunPolicy) -> RunPolicy:
    """Each field of `runPolicy`, or the earlier field where it is not set."""
    missing = {
        field: value
        for field in _EARLIER_FIELDS
        if getattr(current, field) is None and (value := getattr(earlier, field)) is not None
    }
    return msgspec.structs.replace(current, **missing) if missing else current


def canonical_roles(replicas: ReplicaSpecs, kind: Kind) -> dict[str, ReplicaSpec]:
    """Known roles in the kind's spelling and order, then unknown ones as they are."""
    known = {role.name: replica for key, replica in replicas.items() if (role := kind.role(key))}
    unknown = {key: replica for key, replica in replicas.items() if kind.role(key) is None}
    return {role.name: known[role.name] for role in kind.roles if role.name in known} | unknown


def ambiguous_roles(replicas: ReplicaSpecs, kind: Kind) -> Iterator[FieldError]:
    """Roles that occur twice in different letter case: it is unclear which one applies."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for key in replicas:
        if role := kind.role(key):
            spellings[role.name].append(key)
    for role_name, keys in spellings.items():
        first, *others = sorted(keys, key=lambda key: key != role_name)
        for other in others:
            path = f"spec.{kind.replicas_field}[{other}]"
            yield forbidden(path, f"is the same role as {first}: specify only one of them, as {role_name}")


def deprecations(manifest: Manifest, kind: Kind) -> Iterator[str]:
    """Deprecation warnings, in the form of upstream's only such warning."""
    for field, name in _EARLIER_FIELDS.items():
        earlier, current = getattr(manifest.earlier_run_policy, field), getattr(manifest.run_policy, field)
        of_kind = field in kind.fields.__struct_fields__
        if earlier is None or (of_kind and current in {None, earlier}):
            continue
        if of_kind:
            yield f"spec.{name} has no effect beside spec.runPolicy.{name}, remove one of them"
        elif current is None:
            yield f"spec.{name} is deprecated, use spec.runPolicy.{name} instead"
        else:
            yield f"spec.{name} is deprecated and has no effect beside spec.runPolicy.{name}, remove it"
    path = f"spec.{kind.replicas_field}"
    for key in manifest.replicas:
        if (role := kind.role(key)) and key != role.name:
            yield f"{path}[{key}] is deprecated, use {path}[{role.name}] instead"
    yield from kind.deprecations(manifest.fields)


def value_warnings(policy: RunPolicy) -> Iterator[str]:
    """Warnings about values that admission rejects and upstream's operator treats as another value."""
    value = policy.clean_pod_policy
    if value is not None and value not in CLEAN_POD_POLICIES:
        yield f"cleanPodPolicy {quoted(value)} is treated as All, use All, Running or None instead"
