"""`trainwright operator` as a process: finds its cluster, makes sure that it can work there, runs, stops on a signal.

What waiting cannot mend ends it with one line; what it can mend is waited for, and said.
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
from trainwright.operator.application import Parts, own_namespace
from trainwright.operator.options import OperatorError, OperatorOptions, enabled_kinds
from trainwright.operator.reconcile.status_writer import explain_forgetful
from trainwright.operator.setup.capabilities import Surroundings, survey
from trainwright.operator.setup.crds import forgetful_kinds, install_crds, missing_crds
from trainwright.operator.setup.leadership import check_permissions

log = logging.getLogger(__name__)

T = TypeVar("T")

_BY_KUBECTL = "trainwright crds | kubectl apply -f -"

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0
_DEEPEST_JSON = 12_000
"""Levels. The API server takes objects of ten thousand; Python would refuse to read any list that has one of them."""


async def run_operator(options: OperatorOptions) -> None:
    """Runs until SIGTERM or SIGINT. Raises OperatorError or ConfigError, one line each, when it cannot work."""
    kinds, config = enabled_kinds(options.enable_scheme), find_cluster(options)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Many small objects live long: the collector need not walk over them every 700 allocations.
    gc.set_threshold(50_000, 20, 100)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _DEEPEST_JSON))
    parts = Parts(config, kinds, options)
    async with parts.pages():
        surroundings = await _unless(stop, prepare(config, kinds, options))
        if surroundings is not None:
            await parts.work(surroundings, stop)


def find_cluster(options: OperatorOptions) -> ClusterConfig:
    """A kubeconfig that was named wins; inside a pod it is the pod's own cluster; else the user's kubeconfig."""
    named = options.kubeconfig or options.context or os.environ.get("KUBECONFIG")
    if not named and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config()
    return load_kubeconfig(options.kubeconfig, context=options.context)


async def prepare(config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions) -> Surroundings:
    """Returns when the cluster answers and serves our kinds, with what else there is."""
    async with Client(config, retries=False) as client:
        if options.install_crds:
            await _answer(client, lambda: install_crds(client, kinds.values()))
        missing = [
            name
            for kind in kinds.values()
            for name in await _answer(client, partial(missing_crds, client, [kind], namespace=options.namespace))
        ]
        if missing:
            raise OperatorError(
                f"{config.server} does not know {', '.join(missing)}: install the CustomResourceDefinitions with "
                f"`trainwright operator --install-crds` or `{_BY_KUBECTL}`"
            )
        if options.leader_election is not None:
            await check_permissions(client, options.leader_election.namespace or own_namespace(config))
        forgetful = frozenset[str]()
        if not options.install_crds:  # of definitions that have just been installed the schema may still be the old one
            forgetful = await _answer(client, lambda: forgetful_kinds(client, kinds.values()))
        for name in sorted(forgetful):
            log.warning("%s", explain_forgetful(kinds[name]))
        surroundings = await _answer(client, lambda: survey(client, options.settings, namespace=options.namespace))
        return replace(surroundings, forgetful=forgetful)


async def _answer(client: Client, ask: Callable[[], Awaitable[T]]) -> T:
    """Asks until the cluster answers. What it has said once is not asked for again: where every other answer is lost,
    all of them in a row would never come through."""
    server, delay = client.config.server, _FIRST_DELAY
    while True:
        try:
            return await ask()
        except Untrusted as error:
            raise OperatorError(f"{error}; name its authority in the kubeconfig's certificate-authority") from None
        except (Unreachable, ServerError, TooManyRequests, Expired) as error:
            log.warning("cannot work on %s yet, trying again in %g s: %s", server, delay, error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
        except ApiError as error:
            raise OperatorError(f"{server} refuses us: {error}{_remedy(error)}") from None


def _remedy(error: ApiError) -> str:
    """What to do about it, for errors whose message does not say."""
    if isinstance(error, Unauthorized):
        return "; the credentials of the kubeconfig or service account are wrong or have expired"
    if isinstance(error, Forbidden) and CUSTOM_RESOURCE_DEFINITIONS.plural in error.message:
        return f"; have them installed by somebody who may, with `{_BY_KUBECTL}`"
    return "; add that rule to our role" if isinstance(error, Forbidden) else ""


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """The result of the work; None if told to stop first."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
