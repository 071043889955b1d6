"""What a cluster offers beyond jobs, pods and services, found out before the work begins: an installation may lack
autoscalers or forbid to look at Nodes, and then the operator does without them and says so."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects.resources import AUTOSCALERS, NODES, PRIORITY_CLASSES, Resource
from trainwright.operator.options import OperatorError
from trainwright.operator.setup.permissions import may_watch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Surroundings:
    settings: Settings
    """The settings, without what cannot be had here."""
    outlook: Sequence[Resource]
    """What the operator may watch beside jobs and their children."""
    forgetful: frozenset[str] = frozenset()
    """The kinds whose CustomResourceDefinition declares no status field of ours."""


async def survey(client: Client, settings: Settings, *, namespace: str | None = None) -> Surroundings:
    """Raises OperatorError if the gang scheduler that was asked for is not there."""
    if settings.gang is not None and not await _is_served(client, settings.gang.resource, namespace):
        groups = settings.gang.resource.qualified_plural
        raise OperatorError(
            f"--gang-scheduler-name {settings.gang.name}: the cluster serves no {groups}, or forbids them; install the "
            "scheduler with its CustomResourceDefinitions, and allow us to list, watch and write them"
        )
    if settings.autoscaling and not await _is_served(client, AUTOSCALERS, namespace):
        log.warning("no access to %s: spec.elasticPolicy.metrics has no effect", AUTOSCALERS.qualified_plural)
        settings = replace(settings, autoscaling=False)
    wanted = (NODES, PRIORITY_CLASSES) if settings.gang else (NODES,)
    outlook = [resource for resource in wanted if await may_watch(client, resource)]
    for resource in set(wanted) - set(outlook):
        log.warning("no right to list and watch %s: %s", resource.qualified_plural, _CONSEQUENCE[resource])
    return Surroundings(settings, outlook)


_CONSEQUENCE = {
    NODES: "pods on nodes that are gone cannot be replaced",
    PRIORITY_CLASSES: "the least resources of a gang are counted in the order of its roles",
}


async def _is_served(client: Client, resource: Resource, namespace: str | None) -> bool:
    if not await may_watch(client, resource, namespace):
        return False
    try:
        await client.raw("GET", resource.path(namespace), params={"limit": "1"})
    except NotFound:
        return False
    return True
