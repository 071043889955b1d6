"""Discovery of what the cluster supports and allows besides jobs, pods and Services.

A cluster may serve no HorizontalPodAutoscalers or not allow the operator to watch Nodes; then the operator logs a
warning and runs without them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects.resources import AUTOSCALERS, Resource
from trainwright.operator.options import OperatorError
from trainwright.operator.rbac import NODE_STATUS, PRIORITIES
from trainwright.operator.setup.permissions import first_missing_verb, is_watch_allowed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Capabilities:
    settings: Settings
    """The settings, without features that the cluster does not support."""
    cluster_resources: Sequence[Resource]
    """Nodes and PriorityClasses, if the operator is allowed to watch them."""
    prunes_status: frozenset[str] = frozenset()
    """The kinds whose CRD prunes our status fields."""


async def discover_capabilities(client: Client, settings: Settings, *, namespace: str | None = None) -> Capabilities:
    """Raises OperatorError if the cluster does not serve the PodGroups of the gang scheduler."""
    if settings.gang is not None and not await _is_served(client, settings.gang.resource, namespace):
        groups = settings.gang.resource.qualified_plural
        raise OperatorError(
            f"--gang-scheduler-name {settings.gang.name}: the cluster serves no {groups}, or the operator is not "
            "allowed to list and watch them; install the scheduler with its CRDs, and grant the rules"
        )
    if settings.autoscaling and not await _is_served(client, AUTOSCALERS, namespace):
        log.warning("no access to %s: spec.elasticPolicy.metrics has no effect", AUTOSCALERS.qualified_plural)
        settings = replace(settings, autoscaling=False)
    wanted = (NODE_STATUS, PRIORITIES) if settings.gang else (NODE_STATUS,)
    cluster_resources = []
    for feature in wanted:
        (rule,) = feature.rules
        if missing := await first_missing_verb(client, rule, None):
            log.warning("not allowed to %s: %s", missing, feature.without)
        else:
            cluster_resources.append(rule.resource)
    return Capabilities(settings, cluster_resources)


async def _is_served(client: Client, resource: Resource, namespace: str | None) -> bool:
    if not await is_watch_allowed(client, resource, namespace):
        return False
    try:
        await client.raw("GET", resource.path(namespace), params={"limit": "1"})
    except NotFound:
        return False
    return True
