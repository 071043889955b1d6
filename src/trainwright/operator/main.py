"""The entry point of `trainwright operator`: what its process starts, in which order, and how it stops.

`run_operator` finds the cluster and serves metrics and health, waits until the cluster is usable, then runs the job
controller, leader election and webhooks until a signal. Errors that retrying cannot solve end the process with one
line; others are logged and retried.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from trainwright.api.kinds import Kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, in_cluster_config, load_kubeconfig
from trainwright.kube.client.rate_limiter import RateLimiter
from trainwright.kube.client.requests import Request
from trainwright.operator.job_controller import JobController
from trainwright.operator.options import (
    LeaderElectionOptions,
    OperatorError,
    OperatorOptions,
    WebhookOptions,
    enabled_kinds,
)
from trainwright.operator.rbac import (
    AUTOSCALING,
    CRD_INSTALLATION,
    FAILED_POD_LOGS,
    GANG_SCHEDULING,
    LEADER_ELECTION,
    SERVICE_ADOPTION,
    WEBHOOK_SECRET,
    Rule,
    job_rules,
)
from trainwright.operator.reconcile.status_writer import explain_pruned_status
from trainwright.operator.serving.health import Check, CheckResult, health_handler
from trainwright.operator.serving.http_server import Address, Handler, read_address, route, serving
from trainwright.operator.serving.metrics import Metrics
from trainwright.operator.serving.webhook_handlers import webhook_handlers
from trainwright.operator.serving.webhook_server import CERTIFICATES_NOT_READY, WebhookEndpoint, WebhookServer
from trainwright.operator.setup.capabilities import Capabilities, own_namespace, prepare
from trainwright.operator.setup.leadership import Leadership
from trainwright.operator.setup.permissions import missing_permissions

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECTIONS_BESIDE_WRITES = 68
"""For watches and events."""
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


def connection_limit(options: OperatorOptions) -> int:
    """How many connections a client may open: writes must not wait for watches."""
    return options.parallel_writes + _CONNECTIONS_BESIDE_WRITES


class Application:
    """Call `run` inside `serve`, so that probes are answered from the start."""

    def __init__(self, config: ClusterConfig, kinds: Mapping[str, Kind], options: OperatorOptions) -> None:
        self._config = config
        self._kinds = kinds
        self._options = options
        self._metrics = Metrics(kinds, workers=options.controller_threads)
        self._operator: JobController | None = None
        self._leadership: Leadership | None = None
        self._webhooks: WebhookServer | None = None
        self._missing_permissions: list[str] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serves metrics and health. Both may share one address."""
        health = {
            f"{path}{end}": health_handler(path[1:], checks)
            for path, checks in (("/healthz", _LIVENESS), ("/readyz", self._readiness()))
            for end in ("", "/")
        }
        endpoints: dict[Address, dict[str, Handler]] = {}
        flags: dict[Address, str] = {}
        for flag, text, handlers in (
            ("--metrics-bind-address", self._options.metrics_bind_address, {"/metrics": self._metrics.handle}),
            ("--health-probe-bind-address", self._options.health_probe_bind_address, health),
        ):
            if (address := read_address(flag, text)) is not None:
                endpoints.setdefault(address, {}).update(handlers)
                flags.setdefault(address, flag)
        async with AsyncExitStack() as stack:
            for address, handlers in endpoints.items():
                port = await stack.enter_async_context(serving(flags[address], address, route(handlers)))
                log.info(
                    "%s: serving %s",
                    replace(address, port=port),
                    ", ".join(sorted({*handlers} - {"/healthz/", "/readyz/"})),
                )
            yield

    async def run(self, capabilities: Capabilities, stop: asyncio.Event) -> None:
        """Reconciles jobs until `stop` is set. Raises OperatorError if the lease is lost."""
        async with AsyncExitStack() as stack:
            # The lease and the webhooks have their own client, so that reconciling does not delay their requests.
            separate = await stack.enter_async_context(self._client())
            if self._options.leader_election is not None:
                self._leadership = self._new_leadership(separate, self._options.leader_election)
            if self._options.webhooks is not None:
                self._webhooks = self._new_webhooks(separate, self._options.webhooks)
            gate = self._leadership.gate if self._leadership else None
            client = await stack.enter_async_context(self._client(limit=self._limit(), gate=gate))
            self._operator = self._new_operator(client, capabilities)
            try:
                await self._run(self._operator, self._review_permissions(separate), stop)
            except BaseExceptionGroup as several:
                raise _user_error(several) or several from None

    async def _run(self, operator: JobController, review: Coroutine[None, None, None], stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as working, asyncio.TaskGroup() as group:
            operating = working.create_task(operator.run())
            others = [group.create_task(self._log_when_ready(operator)), group.create_task(review)]
            if self._webhooks is not None:
                others.append(group.create_task(self._webhooks.run()))
            if self._leadership is not None:
                others.append(group.create_task(_fail_without_lease(self._leadership)))
            try:
                await stop.wait()
                log.info("stopping: finishing the writes in progress")
            finally:  # a task that fails cancels the wait
                await self._stop_operator(operator, operating)
            for task in others:
                task.cancel()

    async def _stop_operator(self, operator: JobController, operating: asyncio.Task[None]) -> None:
        """Waits until the operator has stopped, then releases the lease, so that a standby takes over at once."""
        operator.stop()
        if self._leadership is not None and self._leadership.lost.is_set():
            operating.cancel()  # without the lease no write is sent
        try:
            await asyncio.wait({operating})
        finally:
            if self._leadership is not None:
                await self._leadership.release()

    async def _log_when_ready(self, operator: JobController) -> None:
        await operator.ready.wait()
        gc.freeze()
        scope = f"namespace {self._options.namespace}" if self._options.namespace else "all namespaces"
        log.info("reconciling %s in %s of %s", ", ".join(self._kinds), scope, self._config.server)

    async def _review_permissions(self, client: Client) -> None:
        """Names every missing permission at start, not only when a job needs it."""
        options, settings = self._options, self._options.settings
        features = {
            SERVICE_ADOPTION: True,
            AUTOSCALING: settings.autoscaling,
            LEADER_ELECTION: options.leader_election is not None,
            WEBHOOK_SECRET: options.webhooks is not None,
            CRD_INSTALLATION: options.install_crds,
            FAILED_POD_LOGS: options.read_failed_pod_logs,
        }
        rules = [
            *job_rules(self._kinds.values()),
            *(rule for feature, used in features.items() if used for rule in feature.rules),
        ]
        if settings.gang is not None:
            rules += [rule for rule in GANG_SCHEDULING.rules if rule.resource == settings.gang.resource]
        lease_namespace = options.leader_election.namespace if options.leader_election else None

        def namespace_of(rule: Rule) -> str | None:
            if rule.own_namespace:
                return (lease_namespace if rule in LEADER_ELECTION.rules else None) or own_namespace(self._config)
            return options.namespace if rule.resource.namespaced else None

        self._missing_permissions = await missing_permissions(client, rules, namespace_of)
        for line in self._missing_permissions:
            log.warning("%s", line)

    def _readiness(self) -> dict[str, Check]:
        checks: dict[str, Check] = {
            "caches": self._check_caches,
            "permissions": lambda: CheckResult(detail="; ".join(self._missing_permissions)),
            "status-fields": self._check_status_fields,
        }
        if self._options.leader_election is not None:
            checks["leader-election"] = self._check_leader_election
        if self._options.webhooks is not None:
            checks["webhook"] = self._check_webhooks
        return checks

    def _check_caches(self) -> CheckResult:
        if self._operator is None or not self._operator.synced.is_set():
            missing = self._operator.sync_errors if self._operator else ()
            return CheckResult(
                ok=False, detail="; ".join((f"caches of {self._config.server} are not synced", *missing))
            )
        return CheckResult()

    def _check_status_fields(self) -> CheckResult:
        """Always ok: the operator also works with a CRD that prunes status fields. The detail names it."""
        kinds = self._operator.prunes_status if self._operator else ()
        return CheckResult(detail="; ".join(explain_pruned_status(self._kinds[name]) for name in sorted(kinds)))

    def _check_leader_election(self) -> CheckResult:
        """A standby is ready: its caches are synced and it takes over at once."""
        return CheckResult(detail=self._leadership.role if self._leadership else "not a candidate yet")

    def _check_webhooks(self) -> CheckResult:
        return self._webhooks.health if self._webhooks else CERTIFICATES_NOT_READY

    def _client(self, *, limit: RateLimiter | None = None, gate: Callable[[Request], None] | None = None) -> Client:
        return Client(
            self._config,
            user_agent="trainwright-operator",
            connections=connection_limit(self._options),
            limit=limit,
            gate=gate,
            observe=self._metrics.requests_to(self._config.server),
        )

    def _limit(self) -> RateLimiter | None:
        qps = self._options.kube_api_qps
        return None if qps is None else RateLimiter(qps, self._options.kube_api_burst)

    def _new_leadership(self, client: Client, options: LeaderElectionOptions) -> Leadership:
        self._metrics.leads(options.name, False)
        return Leadership(
            client,
            options,
            namespace=options.namespace or own_namespace(self._config),
            on_change=lambda leading: self._metrics.leads(options.name, leading),
        )

    def _new_webhooks(self, client: Client, options: WebhookOptions) -> WebhookServer:
        endpoint = WebhookEndpoint(
            namespace=own_namespace(self._config), address=Address("", options.port), names=options
        )
        return WebhookServer(client, endpoint, webhook_handlers(self._kinds, self._metrics.reviewed))

    def _new_operator(self, client: Client, capabilities: Capabilities) -> JobController:
        return JobController(
            client,
            kinds=self._kinds,
            settings=capabilities.settings,
            cluster_resources=capabilities.cluster_resources,
            namespace=self._options.namespace,
            controller_threads=self._options.controller_threads,
            parallel_writes=self._options.parallel_writes,
            observer=self._metrics,
            queue=self._metrics.queue,
            lead=self._leadership.acquire if self._leadership else None,
            prunes_status=capabilities.prunes_status,
            read_failed_pod_logs=self._options.read_failed_pod_logs,
        )


_LIVENESS: dict[str, Check] = {"ping": CheckResult}
"""A response is enough: it comes from the event loop that reconciles, and a watch or worker that fails ends the
process. More checks would restart the process for problems that a restart does not solve: every request has a timeout,
a silent watch is opened again, and reconciling a large job may take minutes under --kube-api-qps."""


async def _fail_without_lease(leadership: Leadership) -> None:
    await leadership.lost.wait()
    raise OperatorError("lost the lease: another process may be the leader; exiting, to restart as a standby")


def _user_error(several: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The first error that is meant for the user, if there is one."""
    error: BaseException | None = several.subgroup((OperatorError, ConfigError))
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


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
