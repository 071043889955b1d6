"""The parts of an operator process and how they hang together: the operator itself, its lease, pages and webhooks."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from trainwright.api.kinds import Kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError
from trainwright.kube.client.rate_limit import RateLimit
from trainwright.kube.client.requests import Request
from trainwright.operator.operator import Operator
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions
from trainwright.operator.reconcile.status_writer import explain_forgetful
from trainwright.operator.serving.health import Check, Finding, health_page
from trainwright.operator.serving.http_server import Address, Page, first_of, read_address, serving
from trainwright.operator.serving.metrics import Metrics
from trainwright.operator.serving.webhook_registration import WebhookPlace, WebhookSetup
from trainwright.operator.serving.webhooks import webhook_pages
from trainwright.operator.setup.capabilities import Surroundings
from trainwright.operator.setup.leadership import Leadership

log = logging.getLogger(__name__)

_OTHER_CONNECTIONS = 68
"""For watches and events, beside the writes."""


def own_namespace(config: ClusterConfig) -> str:
    """Where this operator lives: its pod's namespace, else that of the kubeconfig's context."""
    return os.environ.get("MY_POD_NAMESPACE") or config.namespace


class Parts:
    """Use `pages` around everything, so that probes are answered from the start, and `work` inside."""

    def __init__(self, config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions) -> None:
        self._config = config
        self._kinds = kinds
        self._options = options
        self._metrics = Metrics(kinds, workers=options.controller_threads)
        self._operator: Operator | None = None
        self._leadership: Leadership | None = None
        self._webhooks: WebhookSetup | None = None

    @asynccontextmanager
    async def pages(self) -> AsyncIterator[None]:
        """Serves metrics and health. Both may share one address."""
        health = {
            f"{path}{end}": health_page(path[1:], checks)
            for path, checks in (("/healthz", _ALIVE), ("/readyz", self._readiness()))
            for end in ("", "/")
        }
        wanted: dict[Address, dict[str, Page]] = {}
        flags: dict[Address, str] = {}
        for flag, text, pages in (
            ("--metrics-bind-address", self._options.metrics_bind_address, {"/metrics": self._metrics.page}),
            ("--health-probe-bind-address", self._options.health_probe_bind_address, health),
        ):
            if (address := read_address(flag, text)) is not None:
                wanted.setdefault(address, {}).update(pages)
                flags.setdefault(address, flag)
        async with AsyncExitStack() as stack:
            for address, pages in wanted.items():
                port = await stack.enter_async_context(serving(flags[address], address, first_of(pages)))
                log.info(
                    "%s: serving %s",
                    replace(address, port=port),
                    ", ".join(sorted({*pages} - {"/healthz/", "/readyz/"})),
                )
            yield

    async def work(self, surroundings: Surroundings, stop: asyncio.Event) -> None:
        """Until `stop` is set. Raises OperatorError if the lease is lost: somebody else may lead now."""
        async with AsyncExitStack() as stack:
            # Lease and webhooks have a client of their own: they must not wait for the work.
            aside = await stack.enter_async_context(self._client())
            if self._options.leader_election is not None:
                self._leadership = self._new_leadership(aside, self._options.leader_election)
            if self._options.webhooks is not None:
                self._webhooks = self._new_webhooks(aside, self._options.webhooks)
            gate = self._leadership.gate if self._leadership else None
            client = await stack.enter_async_context(self._client(limit=self._limit(), gate=gate))
            self._operator = self._new_operator(client, surroundings)
            try:
                await self._run(self._operator, stop)
            except BaseExceptionGroup as several:
                raise _first_told(several) from None

    async def _run(self, operator: Operator, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as working, asyncio.TaskGroup() as group:
            operating = working.create_task(operator.run())
            others = [group.create_task(self._announce(operator))]
            if self._webhooks is not None:
                others.append(group.create_task(self._webhooks.run()))
            if self._leadership is not None:
                others.append(group.create_task(_end_without_lease(self._leadership)))
            try:
                await stop.wait()
                log.info("stopping: finishing the writes under way")
            finally:  # a task that fails cancels the wait
                await self._end_writes(operator, operating)
            for task in others:
                task.cancel()

    async def _end_writes(self, operator: Operator, operating: asyncio.Task[None]) -> None:
        """Waits until the operator has stopped, then releases the lease, so that a standby takes over at once."""
        operator.stop()
        if self._leadership is not None and self._leadership.lost.is_set():
            operating.cancel()  # no write would be sent any more
        try:
            await asyncio.wait({operating})
        finally:
            if self._leadership is not None:
                await self._leadership.release()

    async def _announce(self, operator: Operator) -> None:
        await operator.ready.wait()
        gc.freeze()
        scope = f"namespace {self._options.namespace}" if self._options.namespace else "all namespaces"
        log.info("looking after %s in %s of %s", ", ".join(self._kinds), scope, self._config.server)

    def _readiness(self) -> dict[str, Check]:
        checks: dict[str, Check] = {"caches": self._caches_finding, "status-fields": self._status_fields_finding}
        if self._options.leader_election is not None:
            checks["leader-election"] = self._leader_finding
        if self._options.webhooks is not None:
            checks["webhook"] = self._webhook_finding
        return checks

    def _caches_finding(self) -> Finding:
        if self._operator is None or not self._operator.synced.is_set():
            missing = self._operator.missing if self._operator else ()
            detail = f"not everything of {self._config.server} is known yet"
            return Finding(well=False, detail="; ".join((detail, *missing)))
        return Finding()

    def _status_fields_finding(self) -> Finding:
        """Not ideal, but no reason to stop working."""
        forgetful = self._operator.forgetful if self._operator else ()
        return Finding(detail="; ".join(explain_forgetful(self._kinds[name]) for name in sorted(forgetful)))

    def _leader_finding(self) -> Finding:
        """A standby is ready: it knows the cluster and takes over at once."""
        return self._leadership.finding() if self._leadership else Finding(detail="not a candidate yet")

    def _webhook_finding(self) -> Finding:
        return self._webhooks.finding if self._webhooks else Finding(well=False, detail="certificates are not ready")

    def _client(self, *, limit: RateLimit | None = None, gate: Callable[[Request], None] | None = None) -> Client:
        return Client(
            self._config,
            user_agent="trainwright-operator",
            connections=self._options.parallel_writes + _OTHER_CONNECTIONS,
            limit=limit,
            gate=gate,
            observe=self._metrics.requests_to(self._config.server),
        )

    def _limit(self) -> RateLimit | None:
        qps = self._options.kube_api_qps
        return None if qps is None else RateLimit(qps, self._options.kube_api_burst)

    def _new_leadership(self, client: Client, options: LeaderElectionOptions) -> Leadership:
        self._metrics.leads(options.name, False)
        return Leadership(
            client,
            options,
            namespace=options.namespace or own_namespace(self._config),
            on_change=lambda leading: self._metrics.leads(options.name, leading),
        )

    def _new_webhooks(self, client: Client, options: WebhookOptions) -> WebhookSetup:
        place = WebhookPlace(namespace=own_namespace(self._config), address=Address("", options.port), names=options)
        return WebhookSetup(client, place, webhook_pages(self._kinds, self._metrics.reviewed))

    def _new_operator(self, client: Client, surroundings: Surroundings) -> Operator:
        return Operator(
            client,
            kinds=self._kinds,
            settings=surroundings.settings,
            outlook=surroundings.outlook,
            namespace=self._options.namespace,
            controller_threads=self._options.controller_threads,
            parallel_writes=self._options.parallel_writes,
            observer=self._metrics,
            queue=self._metrics.queue,
            lead=self._leadership.acquire if self._leadership else None,
            forgetful=surroundings.forgetful,
        )


_ALIVE: dict[str, Check] = {"ping": Finding}
"""An answer is proof enough: it comes from the event loop that does the work, and a watch or worker that ends takes the
process with it. A check of more would do harm, for what else may be in the way no restart removes: every request has a
deadline, a silent watch is opened anew, and one look at a large job may well take minutes under --kube-api-qps."""


async def _end_without_lease(leadership: Leadership) -> None:
    await leadership.lost.wait()
    raise OperatorError("lost the lease: another process may lead now; this one ends, to start again as a standby")


def _first_told(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error for the user, if there is one among them; else all of them."""
    for one in several.exceptions:
        told = _first_told(one) if isinstance(one, BaseExceptionGroup) else one
        if isinstance(told, OperatorError | ConfigError):
            return told
    return several
