"""What the controllers of workloads have in common: statuses that are written if they differ, timers with a margin."""

from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.outcome import RequeueAfter
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.resources import Resource

_MARGIN_SECONDS = 0.1
"""Added to the time at which something is due, because timers may fire early."""


def requeue_after(seconds: float | None) -> RequeueAfter | None:
    return None if seconds is None else RequeueAfter(seconds + _MARGIN_SECONDS)


async def write_status(client: Client, resource: Resource, store: Store[Object], obj: Object, status: Object) -> None:
    """Writes the status if it differs; `store` has the object as it is then."""
    if status != (obj.get("status") or {}):
        store.remember(await client.replace(resource, obj | {"status": status}, subresource="status"))
