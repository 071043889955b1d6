"""Waits until the cluster responds, checks that it serves the kinds, and discovers what it supports and allows
besides jobs, pods and Services.

A cluster may serve no HorizontalPodAutoscalers or not allow the operator to watch Nodes; then the operator logs a
warning and runs without them.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from trainwright.api.kinds import Kind
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import (
    ApiError,
    Expired,
    Forbidden,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects.resources import AUTOSCALERS, CUSTOM_RESOURCE_DEFINITIONS, Resource
from trainwright.operator.options import OperatorError, OperatorOptions
from trainwright.operator.rbac import NODE_STATUS, PRIORITIES
from trainwright.operator.reconcile.status_writer import explain_pruned_status
from trainwright.operator.setup.crds import install_crds, is_served, kinds_pruning_status
from trainwright.operator.setup.leadership import check_permissions
from trainwright.operator.setup.permissions import first_missing_verb, is_watch_allowed

log = logging.getLogger(__name__)

T = TypeVar("T")

_APPLY_CRDS = "trainwright crds | kubectl apply -f -"
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0


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
    if settings.gang is not None and not await _is_watchable(client, settings.gang.resource, namespace):
        groups = settings.gang.resource.qualified_plural
        raise OperatorError(
            f"--gang-scheduler-name {settings.gang.name}: the cluster serves no {groups}, or the operator is not "
            "allowed to list and watch them; install the scheduler with its CRDs, and grant the rules"
        )
    if settings.autoscaling and not await _is_watchable(client, AUTOSCALERS, namespace):
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


def own_namespace(config: ClusterConfig) -> str:
    """The namespace of the operator's pod, else that of the kubeconfig's context."""
    return os.environ.get("MY_POD_NAMESPACE") or config.namespace


async def prepare(config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions) -> Capabilities:
    """Waits until the cluster responds, checks that it serves our kinds, and discovers its capabilities."""
    async with Client(config, retries=False) as client:
        if options.install_crds:
            await _retried(client, lambda: install_crds(client, kinds.values()))
        missing = [
            kind.resource.qualified_plural
            for kind in kinds.values()
            if not await _retried(client, partial(is_served, client, kind.resource, options.namespace))
        ]
        if missing:
            raise OperatorError(
                f"{config.server} does not serve {', '.join(missing)}: install the CustomResourceDefinitions with "
                f"`trainwright operator --install-crds` or `{_APPLY_CRDS}`, "
                "or name the kinds to run with --enable-scheme"
            )
        if options.leader_election is not None:
            await check_permissions(client, options.leader_election.namespace or own_namespace(config))
        prunes_status = frozenset[str]()
        if not options.install_crds:  # the API server may publish the old schema for a moment after the installation
            prunes_status = await _retried(client, lambda: kinds_pruning_status(client, kinds.values()))
        for name in sorted(prunes_status):
            log.warning("%s", explain_pruned_status(kinds[name]))
        capabilities = await _retried(
            client, lambda: discover_capabilities(client, options.settings, namespace=options.namespace)
        )
        return replace(capabilities, prunes_status=prunes_status)


async def _retried(client: Client, request: Callable[[], Awaitable[T]]) -> T:
    """Retries a request until the cluster responds. Each request is retried by itself: if every other response is lost,
    a retry of the whole sequence would never succeed."""
    server, delay = client.config.server, _FIRST_DELAY
    while True:
        try:
            return await request()
        except Untrusted as error:
            raise OperatorError(f"{error}; set the kubeconfig's certificate-authority") from None
        except (Unreachable, ServerError, TooManyRequests, Expired) as error:
            log.warning("%s is not available, retrying in %g s: %s", server, delay, error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
        except ApiError as error:
            raise OperatorError(f"{server} rejects the operator: {error}{_hint(error)}") from None


def _hint(error: ApiError) -> str:
    """What the user can do."""
    if isinstance(error, Unauthorized):
        return "; the credentials of the kubeconfig or service account are wrong or have expired"
    if isinstance(error, Forbidden) and error.resource == CUSTOM_RESOURCE_DEFINITIONS.plural:
        return f"; let an administrator install them with `{_APPLY_CRDS}`"
    return "; add that rule to the operator's role" if isinstance(error, Forbidden) else ""


async def _is_watchable(client: Client, resource: Resource, namespace: str | None) -> bool:
    return await is_watch_allowed(client, resource, namespace) and await is_served(client, resource, namespace)
