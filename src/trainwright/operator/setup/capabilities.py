"""What a cluster offers beyond jobs, pods and services, found out before the work begins: an installation may lack
autoscalers or forbid to look at Nodes, and then the operator does without them and says so."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects.resources import AUTOSCALERS, Resource
from trainwright.operator.options import OperatorError
from trainwright.operator.rbac import NODE_STATUS, PRIORITIES
from trainwright.operator.setup.permissions import is_watch_allowed, missing_permission

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
    wanted = (NODE_STATUS, PRIORITIES) if settings.gang else (NODE_STATUS,)
    outlook = []
    for feature in wanted:
        (rule,) = feature.rules
        if missing := await missing_permission(client, rule, None):
            log.warning("not allowed to %s: %s", missing, feature.without)
        else:
            outlook.append(rule.resource)
    return Surroundings(settings, outlook)


async def _is_served(client: Client, resource: Resource, namespace: str | None) -> bool:
    if not await is_watch_allowed(client, resource, namespace):
        return False
    try:
        await client.raw("GET", resource.path(namespace), params={"limit": "1"})
    except NotFound:
        return False
    return True
