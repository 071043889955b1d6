"""Spellings of earlier operators: they are read as what they mean today, with a deprecation warning.

The first operators had the limits directly under `spec` and took the names of roles in any letter case.
"""

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from trainwright.api.kinds import Kind, ReplicaSpecs
from trainwright.api.parsing import Manifest
from trainwright.api.types import CLEAN_POD_POLICIES, EarlierRunPolicy, ReplicaSpec, RunPolicy
from trainwright.objects.field_errors import FieldError, forbidden, quoted

_EARLIER_FIELDS = {field.name: field.encode_name for field in msgspec.structs.fields(EarlierRunPolicy)}
"""As Python and as manifests spell them."""


def merged_run_policy(current: RunPolicy, earlier: EarlierRunPolicy) -> RunPolicy:
    """The run policy that both mean together: field by field `runPolicy` wins."""
    missing = {
        field: value
        for field in _EARLIER_FIELDS
        if getattr(current, field) is None and (value := getattr(earlier, field)) is not None
    }
    return msgspec.structs.replace(current, **missing) if missing else current


def canonical_roles(replicas: ReplicaSpecs, kind: Kind) -> dict[str, ReplicaSpec]:
    """Known roles under their own spelling and in the kind's order; unknown ones after them, as they are."""
    known = {role.name: replica for key, replica in replicas.items() if (role := kind.role(key))}
    unknown = {key: replica for key, replica in replicas.items() if kind.role(key) is None}
    return {role.name: known[role.name] for role in kind.roles if role.name in known} | unknown


def ambiguous_roles(replicas: ReplicaSpecs, kind: Kind) -> Iterator[FieldError]:
    """Roles that are written twice, in different letter case: only the user knows which one is meant."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for key in replicas:
        if role := kind.role(key):
            spellings[role.name].append(key)
    for role_name, keys in spellings.items():
        first, *others = sorted(keys, key=lambda key: key != role_name)
        for other in others:
            path = f"spec.{kind.replicas_field}[{other}]"
            yield forbidden(path, f"is the same role as {first}: only one of them may be there, as {role_name}")


def deprecations(manifest: Manifest, kind: Kind) -> Iterator[str]:
    """Warnings about what users should write in another way, in the words of upstream's only such warning."""
    for field, name in _EARLIER_FIELDS.items():
        if getattr(manifest.earlier_run_policy, field) is None:
            continue
        if getattr(manifest.run_policy, field) is None:
            yield f"spec.{name} is deprecated, use spec.runPolicy.{name} instead"
        else:
            yield f"spec.{name} is deprecated and has no effect beside spec.runPolicy.{name}, remove it"
    path = f"spec.{kind.replicas_field}"
    for key in manifest.replicas:
        if (role := kind.role(key)) and key != role.name:
            yield f"{path}[{key}] is deprecated, use {path}[{role.name}] instead"
    yield from kind.deprecations(manifest.fields)


def misreadings(policy: RunPolicy) -> Iterator[str]:
    """Warnings about values that admission refuses, but that upstream's operator takes for something else."""
    written = policy.clean_pod_policy
    if written is not None and written not in CLEAN_POD_POLICIES:
        yield f"cleanPodPolicy {quoted(written)} is taken for All, use All, Running or None instead"
