"""`trainwright operator` as a process: finds its cluster, makes sure that it can work there, runs, stops on a signal.

What waiting cannot mend ends it with one line; what it can mend is waited for, and said.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Coroutine, Mapping

from trainwright.api.kinds import Kind
from trainwright.engine import Settings
from trainwright.engine.settings import InitContainer
from trainwright.kube.client import Client
from trainwright.kube.config import ClusterConfig, in_cluster_config, load_kubeconfig
from trainwright.kube.errors import ApiError, ServerError, TooManyRequests, Unreachable, Untrusted
from trainwright.operator.crds import install_crds, missing_crds
from trainwright.operator.operator import Operator
from trainwright.operator.options import OperatorError, OperatorOptions, enabled_kinds
from trainwright.operator.surroundings import survey

log = logging.getLogger(__name__)

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0


async def run_operator(options: OperatorOptions) -> None:
    """Runs until SIGTERM or SIGINT. Raises OperatorError or ConfigError, one line each, when it cannot work."""
    kinds, config = enabled_kinds(options.enable_scheme), find_cluster(options)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Many small objects live long: the collector need not walk over them every 700 allocations.
    gc.set_threshold(50_000, 20, 100)
    if await _unless(stop, prepare(config, kinds, options)):
        await _work(config, kinds, options, stop=stop)


def find_cluster(options: OperatorOptions) -> ClusterConfig:
    """A kubeconfig that was named wins; inside a pod it is the pod's own cluster; else the user's kubeconfig."""
    named = options.kubeconfig or options.context or os.environ.get("KUBECONFIG")
    if not named and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config()
    return load_kubeconfig(options.kubeconfig, context=options.context)


def settings_from(options: OperatorOptions) -> Settings:
    return Settings(
        init_container=InitContainer(
            image=options.pytorch_init_container_image, max_tries=options.pytorch_init_container_max_tries
        )
    )


async def prepare(config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions) -> None:
    """Returns when the cluster answers and serves our kinds."""
    delay = _FIRST_DELAY
    async with Client(config, retries=False) as client:
        while True:
            try:
                if options.install_crds:
                    await install_crds(client, kinds.values())
                missing = await missing_crds(client, kinds.values(), namespace=options.namespace)
                break
            except Untrusted as error:
                raise OperatorError(f"{error}; name its authority in the kubeconfig's certificate-authority") from None
            except (Unreachable, ServerError, TooManyRequests) as error:
                log.warning("cannot work on %s yet, trying again in %g s: %s", config.server, delay, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_DELAY)
            except ApiError as error:
                raise OperatorError(f"{config.server} refuses us: {error}") from None
    if missing:
        raise OperatorError(
            f"{config.server} does not know {', '.join(missing)}: install the CustomResourceDefinitions with "
            "`trainwright operator --install-crds`, or have them installed with `kubectl apply`"
        )


async def _work(
    config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions, stop: asyncio.Event
) -> None:
    async with Client(config, user_agent="trainwright-operator") as client:
        surroundings = await survey(client, settings_from(options), namespace=options.namespace)
        operator = Operator(
            client,
            kinds=kinds,
            settings=surroundings.settings,
            outlook=surroundings.outlook,
            namespace=options.namespace,
            controller_threads=options.controller_threads,
            parallel_writes=options.parallel_writes,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(operator.run())
            if await _unless(stop, operator.ready.wait()):
                gc.freeze()
                scope = f"namespace {options.namespace}" if options.namespace else "all namespaces"
                log.info("looking after %s in %s of %s", ", ".join(kinds), scope, config.server)
                await stop.wait()
            log.info("stopping: finishing the writes under way")
            operator.stop()


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, object]) -> bool:
    """Does the work unless told to stop first; whether it was done."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
