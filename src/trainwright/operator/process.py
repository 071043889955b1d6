"""The process behind `trainwright operator`: finds its cluster, checks CRDs and permissions, runs until a signal.

Errors that retrying cannot solve end the process with one line; others are logged and retried.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

from trainwright.api.kinds import Kind
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
from trainwright.kube.client.kubeconfig import ClusterConfig, in_cluster_config, load_kubeconfig
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainwright.operator.application import Application, own_namespace
from trainwright.operator.options import OperatorError, OperatorOptions, enabled_kinds
from trainwright.operator.reconcile.status_writer import explain_pruned_status
from trainwright.operator.setup.capabilities import Capabilities, discover_capabilities
from trainwright.operator.setup.crds import install_crds, kinds_pruning_status, missing_crds
from trainwright.operator.setup.leadership import check_permissions

log = logging.getLogger(__name__)

T = TypeVar("T")

_APPLY_CRDS = "trainwright crds | kubectl apply -f -"

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_RECURSION_LIMIT = 12_000
"""The API server accepts objects with 10,000 nested levels. With a lower limit Python could not decode a list that
contains one of them."""


async def run_operator(options: OperatorOptions) -> None:
    """Runs until SIGTERM or SIGINT. Raises OperatorError or ConfigError, one line each, if it cannot run."""
    domain = options.settings.cluster_domain
    kinds = {name: replace(kind, cluster_domain=domain) for name, kind in enabled_kinds(options.enable_scheme).items()}
    config = find_cluster(options)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Caches hold many small objects; with the default threshold they are traversed every 700 allocations.
    gc.set_threshold(50_000, 20, 100)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    application = Application(config, kinds, options)
    async with application.serve():
        capabilities = await _unless_stopped(stop, prepare(config, kinds, options))
        if capabilities is not None:
            await application.run(capabilities, stop)


def find_cluster(options: OperatorOptions) -> ClusterConfig:
    """A kubeconfig that was set explicitly, else inside a pod its service account, else the user's kubeconfig."""
    named = options.kubeconfig or options.context or os.environ.get("KUBECONFIG")
    if not named and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config()
    return load_kubeconfig(options.kubeconfig, context=options.context)


async def prepare(config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions) -> Capabilities:
    """Waits until the cluster responds, checks that it serves our kinds, and discovers its capabilities."""
    async with Client(config, retries=False) as client:
        if options.install_crds:
            await _retried(client, lambda: install_crds(client, kinds.values()))
        missing = [
            name
            for kind in kinds.values()
            for name in await _retried(client, partial(missing_crds, client, [kind], namespace=options.namespace))
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
    if isinstance(error, Forbidden) and CUSTOM_RESOURCE_DEFINITIONS.plural in error.message:
        return f"; let an administrator install them with `{_APPLY_CRDS}`"
    return "; add that rule to the operator's role" if isinstance(error, Forbidden) else ""


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """The result of the work; None if `stop` is set first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
