"""What the operator may do in its cluster, asked of the cluster itself: watches that only some installations allow.

The rules of training-operator's ClusterRole do not name Nodes or PriorityClasses, for example. Whoever needs such a
resource asks here first and does without it where the answer is no, instead of being refused again and again.
"""

import asyncio
import logging
import random

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, ServerError, TooManyRequests, Unreachable
from trainwright.kube.client.retries import backoff
from trainwright.objects import Object
from trainwright.objects.resources import Resource

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


async def may(client: Client, verb: str, resource: Resource, namespace: str | None = None) -> bool:
    """Whether our credentials allow `verb` ("list", "create", ...) on the resource; without a namespace: in all.

    It says nothing about whether the resource is served. Waits for a cluster that cannot answer at the moment; one
    that refuses the very question allows nothing.
    """
    attempt = 0
    while True:
        try:
            answer = await client.create(_REVIEWS, _review(verb, resource, namespace))
        except (Unreachable, ServerError, TooManyRequests) as error:
            log.warning("cannot ask whether we may %s %s yet: %s", verb, resource.qualified_plural, error)
            await asyncio.sleep(
                backoff(attempt, jitter=random.random(), first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)  # noqa: S311
            )
            attempt += 1
        except ApiError as error:
            log.warning("may not even ask whether we may %s %s: %s", verb, resource.qualified_plural, error)
            return False
        else:
            return bool((answer.get("status") or {}).get("allowed"))


async def may_watch(client: Client, resource: Resource, namespace: str | None = None) -> bool:
    """Whether a cache of the resource can be kept: it takes a list and a watch."""
    return await may(client, "list", resource, namespace) and await may(client, "watch", resource, namespace)


_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


def _review(verb: str, resource: Resource, namespace: str | None) -> Object:
    attributes = {"verb": verb, "group": resource.group, "version": resource.version, "resource": resource.plural}
    if namespace and resource.namespaced:
        attributes["namespace"] = namespace
    return {
        "apiVersion": _REVIEWS.api_version,
        "kind": _REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
