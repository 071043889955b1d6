"""Asks the API server what the operator is allowed to do, by SelfSubjectAccessReviews.

Features that need more than upstream's ClusterRole grants, Nodes or PriorityClasses for example, ask before they start
and stay off if the answer is no.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, ServerError, TooManyRequests, Unreachable
from trainwright.kube.client.retries import backoff
from trainwright.objects import Object
from trainwright.objects.resources import Resource
from trainwright.operator.rbac import Rule

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_CONCURRENT_REVIEWS = 8


async def is_allowed(
    client: Client, verb: str, resource: Resource, namespace: str | None = None, *, subresource: str = ""
) -> bool:
    """Whether the client's credentials allow `verb` on the resource; without a namespace: in all namespaces.

    Does not check whether the resource is served. Waits while the API server cannot answer. Returns False if the API
    server forbids the review itself.
    """
    attempt = 0
    while True:
        try:
            answer = await client.create(_REVIEWS, _review(verb, resource, namespace, subresource))
        except (Unreachable, ServerError, TooManyRequests) as error:
            log.warning("cannot review access to %s %s yet: %s", verb, resource.qualified_plural, error)
            await asyncio.sleep(
                backoff(attempt, jitter=random.random(), first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)  # noqa: S311
            )
            attempt += 1
        except ApiError as error:
            log.warning("cannot review access to %s %s: %s", verb, resource.qualified_plural, error)
            return False
        else:
            return bool((answer.get("status") or {}).get("allowed"))


async def is_watch_allowed(client: Client, resource: Resource, namespace: str | None = None) -> bool:
    """Whether the resource can be cached, which requires list and watch."""
    return await is_allowed(client, "list", resource, namespace) and await is_allowed(
        client, "watch", resource, namespace
    )


async def first_missing_verb(client: Client, rule: Rule, namespace: str | None, *, optional: str = "") -> str:
    """The first verb of the rule that is not allowed, with its resource ("update leases in namespace x"); empty if all
    verbs are. `optional` is a verb that is not required."""
    where = f" in namespace {namespace}" if namespace else ""
    for verb in rule.verbs:
        if verb != optional and not await is_allowed(client, verb, rule.resource, namespace):
            return f"{verb} {rule.resource.qualified_plural}{where}"
    return ""


async def missing_permissions(
    client: Client, rules: Iterable[Rule], namespace: Callable[[Rule], str | None]
) -> list[str]:
    """One line for each verb of the rules that is not allowed in the namespace of its rule."""
    places = asyncio.Semaphore(_CONCURRENT_REVIEWS)

    async def review(rule: Rule, verb: str) -> str:
        where = namespace(rule)
        async with places:
            if await is_allowed(client, verb, rule.resource, where, subresource=rule.subresource):
                return ""
        name = f"{rule.resource.qualified_plural}/{rule.subresource}".rstrip("/")
        place = f" in namespace {where}" if where else ""
        return f"not allowed to {verb} {name}{place}, which is needed to {rule.reason}; add it to the operator's role"

    lines = await asyncio.gather(*(review(rule, verb) for rule in rules for verb in rule.verbs))
    return [line for line in lines if line]


_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)


def _review(verb: str, resource: Resource, namespace: str | None, subresource: str) -> Object:
    attributes = {"verb": verb, "group": resource.group, "version": resource.version, "resource": resource.plural}
    if subresource:
        attributes["subresource"] = subresource
    if namespace and resource.namespaced:
        attributes["namespace"] = namespace
    return {
        "apiVersion": _REVIEWS.api_version,
        "kind": _REVIEWS.kind,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
