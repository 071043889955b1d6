"""The admission plugin ResourceQuota: refuses an object that would exceed a quota of its namespace."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from fractions import Fraction

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.kinds.quota import applies_to, missing_amounts, total_usage, usage_of
from trainwright.objects.quantities import format_quantity, parse_amounts
from trainwright.objects.resources import PODS, RESOURCE_QUOTAS, Resource

_QUOTAS = RESOURCE_QUOTAS.qualified_plural


class QuotaLocks:
    """A write is visible when it is committed, so writes in a namespace with quotas follow each other."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @asynccontextmanager
    async def hold(self, namespace: str) -> AsyncIterator[None]:
        if not self._store.count(_QUOTAS) or not any(self._store.list(_QUOTAS, namespace)):
            yield
            return
        async with self._locks[namespace]:
            yield


def admit_quota(store: ObjectStore, kind: ResourceType, namespace: str, obj: Object, old: Object | None = None) -> None:
    """Raises 403 if the new object, or what the update of `old` adds to it, exceeds a quota."""
    if not store.count(_QUOTAS) or kind.resource == RESOURCE_QUOTAS:
        return
    usage = usage_of(kind.resource, obj)
    for stored in store.list(_QUOTAS, namespace):
        quota = stored.obj
        if not applies_to(quota, kind.resource, obj):
            continue
        before = usage_of(kind.resource, old) if old is not None and applies_to(quota, kind.resource, old) else {}
        requested = {name: more for name, amount in usage.items() if (more := amount - before.get(name, 0)) > 0}
        if requested:
            _check(store, kind, quota, requested, obj)


def _check(
    store: ObjectStore, kind: ResourceType, quota: Object, requested: Mapping[str, Fraction], obj: Object
) -> None:
    name, namespace = quota["metadata"]["name"], quota["metadata"]["namespace"]
    if kind.resource == PODS and (missing := missing_amounts(quota, obj)):
        why = f"failed quota: {name}: must specify {missing}"
        raise errors.forbidden(kind.resource, obj["metadata"]["name"], why)
    hard = quota["spec"].get("hard") or {}
    if not requested.keys() & hard.keys():
        return
    limits = parse_amounts(hard)
    used = total_usage(quota, _counted(store, kind, namespace))
    exceeded = sorted(
        resource
        for resource, amount in requested.items()
        if resource in limits and used[resource] + amount > limits[resource]
    )
    if exceeded:
        why = (
            f"exceeded quota: {name}, requested: {_shown(requested, exceeded)}, used: {_shown(used, exceeded)}, "
            f"limited: {','.join(f'{resource}={hard[resource]}' for resource in exceeded)}"
        )
        raise errors.forbidden(kind.resource, obj["metadata"]["name"], why)


def _counted(store: ObjectStore, kind: ResourceType, namespace: str) -> Iterable[tuple[Resource, Object]]:
    """Only objects of this kind use what a new one requests."""
    return ((kind.resource, stored.obj) for stored in store.list(kind.key, namespace))


def _shown(amounts: Mapping[str, Fraction], names: Iterable[str]) -> str:
    return ",".join(f"{name}={format_quantity(amounts[name])}" for name in names)
