"""Watches objects for commands: lists, watches, and starts again after a broken connection, until a deadline."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from trainwright.kube.client.errors import Expired, Unavailable, Unreachable, Untrusted
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import Resource

_WATCH_SECONDS = 300
_PAUSE_SECONDS = 0.5

Change = tuple[str, Object]
"""ADDED, MODIFIED or DELETED, and the object; its last known state if it was deleted."""


def watch_objects(
    client: SyncClient,
    resource: Resource,
    *,
    namespace: str | None,
    label_selector: str = "",
    field_selector: str = "",
    known: Mapping[str, Object] | None = None,
    deadline: float = math.inf,
    on_unreachable: Callable[[Unreachable], None] | None = None,
) -> Iterator[Change]:
    """First the objects there are, then every change. Ends at `deadline`, a time of time.monotonic().

    `known` has objects by uid that were listed before: those that have been deleted since are reported, and only
    changes of the others. `on_unreachable` is called once for each time that the cluster becomes unreachable; the watch
    then tries again.
    """
    known = dict(known or {})
    reported = False
    while time.monotonic() < deadline:
        try:
            listed = client.list(
                resource, namespace=namespace, label_selector=label_selector, field_selector=field_selector
            )
            reported = False
            yield from _differences(known, {obj["metadata"]["uid"]: obj for obj in listed.items})
            events = client.watch(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=listed.resource_version,
                timeout_seconds=max(1, math.ceil(min(_WATCH_SECONDS, deadline - time.monotonic()))),
            )
            with closing(events):
                for event in events:
                    uid = event.object["metadata"]["uid"]
                    if event.type == "DELETED":
                        known.pop(uid, None)
                    else:
                        known[uid] = event.object
                    yield event.type, event.object
        except Expired:
            continue
        except Untrusted:
            raise
        except (Unreachable, Unavailable) as error:
            if on_unreachable and not reported and isinstance(error, Unreachable):
                on_unreachable(error)
            reported = True
            time.sleep(min(_PAUSE_SECONDS, max(deadline - time.monotonic(), 0)))


def _differences(known: dict[str, Object], present: dict[str, Object]) -> Iterator[Change]:
    """What a new list changes, and updates `known`."""
    for uid in [uid for uid in known if uid not in present]:
        yield "DELETED", known.pop(uid)
    for uid, obj in present.items():
        before = known.get(uid)
        known[uid] = obj
        if before is None:
            yield "ADDED", obj
        elif before["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
            yield "MODIFIED", obj
