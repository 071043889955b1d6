"""Spellings of earlier operators: still read, in the place of what they mean today, and never without a word about it.

The first operators had the limits directly under `spec` and took the names of roles in any letter case.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated

import msgspec

from trainwright.api.kinds import Kind
from trainwright.api.types import CLEAN_POD_POLICIES, Int32, Int64, text
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, quoted
from trainwright.objects.metadata import View


class EarlierRunPolicy(View, frozen=True):
    """The fields of `runPolicy` where earlier operators had them: directly under `spec`."""

    clean_pod_policy: Annotated[
        str | None, text("Deprecated: write spec.runPolicy.cleanPodPolicy, which wins.", enum=list(CLEAN_POD_POLICIES))
    ] = None
    ttl_seconds_after_finished: Annotated[
        Int32 | None, text("Deprecated: write spec.runPolicy.ttlSecondsAfterFinished, which wins.")
    ] = None
    active_deadline_seconds: Annotated[
        Int64 | None, text("Deprecated: write spec.runPolicy.activeDeadlineSeconds, which wins.")
    ] = None
    backoff_limit: Annotated[Int32 | None, text("Deprecated: write spec.runPolicy.backoffLimit, which wins.")] = None


EARLIER_FIELDS: tuple[str, ...] = tuple(field.encode_name for field in msgspec.structs.fields(EarlierRunPolicy))


def run_policy(spec: Object) -> Object:
    """The run policy that a spec of right types means: field by field `runPolicy` wins, and null is absent."""
    earlier = {field: spec[field] for field in EARLIER_FIELDS if spec.get(field) is not None}
    current = {field: value for field, value in (spec.get("runPolicy") or {}).items() if value is not None}
    return earlier | current


def canonical_roles(replicas: Object, kind: Kind) -> Object:
    """Known roles under their own spelling and in the kind's order; unknown ones after them, as they are."""
    present = {key: replica for key, replica in replicas.items() if replica is not None}
    known = {role.name: replica for key, replica in present.items() if (role := kind.role(key))}
    unknown = {key: replica for key, replica in present.items() if kind.role(key) is None}
    return {role.name: known[role.name] for role in kind.roles if role.name in known} | unknown


def ambiguous_roles(replicas: Object, kind: Kind) -> Iterator[FieldError]:
    """Roles that are there twice, in different letter case: which one is meant is the user's to say."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for key, replica in replicas.items():
        if replica is not None and (role := kind.role(key)):
            spellings[role.name].append(key)
    for role_name, keys in spellings.items():
        first, *others = sorted(keys, key=lambda key: key != role_name)
        for other in others:
            path = f"spec.{kind.replicas_field}[{other}]"
            yield forbidden(path, f"is the same role as {first}: only one of them may be there, as {role_name}")


def deprecations(spec: Object, kind: Kind) -> Iterator[str]:
    """What a spec of right types should write in another way, in the words of upstream's only such warning."""
    current = spec.get("runPolicy") or {}
    for field in EARLIER_FIELDS:
        if spec.get(field) is None:
            continue
        if current.get(field) is None:
            yield f"spec.{field} is deprecated, use spec.runPolicy.{field} instead"
        else:
            yield f"spec.{field} is deprecated and has no effect beside spec.runPolicy.{field}, remove it"
    path = f"spec.{kind.replicas_field}"
    for key, replica in (spec.get(kind.replicas_field) or {}).items():
        if replica is not None and (role := kind.role(key)) and key != role.name:
            yield f"{path}[{key}] is deprecated, use {path}[{role.name}] instead"
    yield from kind.deprecations(spec)


def misreadings(spec: Object) -> Iterator[str]:
    """What admission refuses and upstream's operator, should it meet it, takes for something else."""
    policy = run_policy(spec).get("cleanPodPolicy")
    if policy is not None and policy not in CLEAN_POD_POLICIES:
        yield f"cleanPodPolicy {quoted(policy)} is taken for All, use All, Running or None instead"
