"""Serves the admission webhooks and keeps them reachable: certificates in their Secret, the authority in the
ValidatingWebhookConfiguration.

Every replica does this, leader or not. The Secret coordinates them: the first write wins, and the others use its
certificates. If a user empties or replaces one of the objects, the watch triggers a correction.
"""

import asyncio
import base64
import binascii
import logging
import random
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.credentials import load_certificate
from trainwright.kube.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, Unreachable
from trainwright.kube.client.retries import backoff
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.resources import SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS, Resource
from trainwright.operator.options import WebhookOptions
from trainwright.operator.rbac import WEBHOOKS
from trainwright.operator.serving.health import CheckResult
from trainwright.operator.serving.http_server import Address, Handler, route, serving
from trainwright.operator.serving.webhook_certificates import Certificates, read_certificates, renewed
from trainwright.operator.setup.permissions import first_missing_verb

log = logging.getLogger(__name__)

CHECK_SECONDS = 3600.0
"""How often the certificates' dates are checked; they are renewed 90 days before they expire."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0

CERTIFICATES_NOT_READY = CheckResult(ok=False, detail="certificates are not ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """The namespace of Secret and Service, the address to listen on, and the names of the objects."""

    namespace: str
    address: Address
    names: WebhookOptions = field(default_factory=WebhookOptions)


def names_to_serve(endpoint: WebhookEndpoint, configuration: Object) -> set[str]:
    """The host names by which the API server calls the webhooks: the name of the Service, and the hosts of URLs."""
    clients = [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ()]
    hosts = (urlsplit(client["url"]).hostname for client in clients if client.get("url"))
    return {f"{endpoint.names.service}.{endpoint.namespace}.svc", *(host for host in hosts if host)}


def calls_operator(endpoint: WebhookEndpoint, configuration: Object) -> bool:
    """Whether a webhook of the configuration calls the operator's Service or a URL."""
    return any(_calls_operator(endpoint, webhook) for webhook in configuration.get("webhooks") or ())


def with_authority(endpoint: WebhookEndpoint, configuration: Object, authority: bytes) -> Object | None:
    """The configuration with the authority in every webhook that calls this operator; None if nothing changes."""
    bundle = base64.b64encode(authority).decode()
    webhooks = configuration.get("webhooks") or []
    trusting = [
        {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}
        if _calls_operator(endpoint, webhook)
        else webhook
        for webhook in webhooks
    ]
    return None if trusting == webhooks else {**configuration, "webhooks": trusting}


def secret_data(secret: Object) -> dict[str, bytes]:
    """The decoded data; values that are not base64 count as empty."""
    return {key: _decoded(text) for key, text in (secret.get("data") or {}).items()}


class WebhookServer:
    """`run` serves the webhooks as soon as the cluster has a configuration that calls them. `health` is their state;
    `port` is the port in use, 0 while they are not served."""

    def __init__(
        self,
        client: Client,
        endpoint: WebhookEndpoint,
        handlers: Mapping[str, Handler],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.health = CERTIFICATES_NOT_READY
        self.port = 0
        self._client = client
        self._endpoint = endpoint
        self._handler = route(handlers)
        self._clock = clock
        self._secrets: Store[Object] = Store()
        self._configurations: Store[Object] = Store()
        self._changed = asyncio.Event()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded: Certificates | None = None

    async def run(self) -> None:
        """Runs until it is cancelled. Returns early only if permissions are missing; then webhooks are off."""
        for rule in WEBHOOKS.rules:
            namespace = self._endpoint.namespace if rule.own_namespace else None
            if missing := await first_missing_verb(self._client, rule, namespace):
                self._turn_off(f"not allowed to {missing}")
                return
        reflectors = (
            self._reflector(SECRETS, self._secrets, self._endpoint.names.secret, namespace=self._endpoint.namespace),
            self._reflector(
                VALIDATING_WEBHOOK_CONFIGURATIONS, self._configurations, self._endpoint.names.configuration
            ),
        )
        async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
            for reflector in reflectors:
                group.create_task(reflector.run())
            for reflector in reflectors:
                await reflector.wait_for_sync()
            await self._sync_until_cancelled(stack)

    async def _sync_until_cancelled(self, stack: AsyncExitStack) -> None:
        failures = 0
        while True:
            self._changed.clear()
            pause = CHECK_SECONDS
            try:
                await self._sync(stack)
                failures = 0
            except Forbidden as error:
                self._turn_off(str(error))
            except (ApiError, Unreachable) as error:
                # After a conflict with another replica the watch delivers what it wrote.
                if not isinstance(error, Conflict | AlreadyExists):
                    self._report(CheckResult(ok=False, detail=f"{CERTIFICATES_NOT_READY.detail}: {error}"))
                jitter = random.random()  # noqa: S311
                pause = backoff(failures, jitter=jitter, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                failures += 1
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _sync(self, stack: AsyncExitStack) -> None:
        endpoint = self._endpoint
        configuration = self._configurations.get(endpoint.names.configuration)
        if configuration is None:
            missing = f"ValidatingWebhookConfiguration {endpoint.names.configuration}"
            self._report(CheckResult(detail=f"off: there is no {missing}; the operator itself validates every job"))
            return
        if not calls_operator(endpoint, configuration):
            self._report(CheckResult(detail=_explain_other_service(endpoint, configuration)), level=logging.WARNING)
            return
        certificates = await self._certificates(names_to_serve(endpoint, configuration))
        if certificates != self._loaded:
            load_certificate(self._tls, certificates.server, certificates.server_key)
            self._loaded = certificates
        if not self.port:
            server = serving("--webhook-server-port", endpoint.address, self._handler, tls=self._tls)
            self.port = await stack.enter_async_context(server)
        if (trusting := with_authority(endpoint, configuration, certificates.authority)) is not None:
            answer = await self._client.replace(VALIDATING_WEBHOOK_CONFIGURATIONS, trusting)
            self._configurations.remember(answer)
        self._report(CheckResult(detail=f"serving on port {self.port}"))

    async def _certificates(self, names: set[str]) -> Certificates:
        """The certificates of the Secret, created or renewed if necessary."""
        endpoint = self._endpoint
        secret = self._secrets.get(f"{endpoint.namespace}/{endpoint.names.secret}")
        present = read_certificates(secret_data(secret)) if secret else None
        fresh = renewed(present, names, self._clock())
        if fresh is None and present is not None:
            return present
        assert fresh is not None  # noqa: S101 (for the type checker: `renewed` returns None only for valid ones)
        data = {key: base64.b64encode(value).decode() for key, value in fresh.as_data().items()}
        if secret is None:
            answer = await self._client.create(SECRETS, _new_secret(endpoint, data))
        else:
            answer = await self._client.replace(SECRETS, {**secret, "data": {**(secret.get("data") or {}), **data}})
        log.info("wrote the webhooks' certificates to Secret %s/%s", endpoint.namespace, endpoint.names.secret)
        self._secrets.remember(answer)
        return fresh

    def _turn_off(self, why: str) -> None:
        """The operator stays ready and reconciles existing jobs; but the API server rejects new ones."""
        name = self._endpoint.names.configuration
        detail = f"off: {why}; while there is a ValidatingWebhookConfiguration {name}, the API server rejects jobs"
        self._report(CheckResult(detail=detail), level=logging.WARNING)

    def _report(self, health: CheckResult, *, level: int = logging.INFO) -> None:
        if health != self.health:
            self.health = health
            log.log(level if health.ok else logging.WARNING, "admission webhooks: %s", health.detail)

    def _reflector(
        self, resource: Resource, store: Store[Object], name: str, *, namespace: str | None = None
    ) -> Reflector[Object]:
        return Reflector(
            self._client,
            resource,
            store,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            on_change=lambda _, __: self._changed.set(),
        )


def _calls_operator(endpoint: WebhookEndpoint, webhook: Object) -> bool:
    """Webhooks that call another operator's Service are left alone: that operator has an authority of its own."""
    called = webhook.get("clientConfig") or {}
    service = called.get("service")
    if service is None:
        return bool(called.get("url"))
    return bool((service.get("namespace"), service.get("name")) == (endpoint.namespace, endpoint.names.service))


def _explain_other_service(endpoint: WebhookEndpoint, configuration: Object) -> str:
    clients = [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ()]
    services = [client["service"] for client in clients if client.get("service")]
    called = {f"Service {service.get('namespace')}/{service.get('name')}" for service in services} or {"no Service"}
    return (
        f"off: {endpoint.names.configuration} calls {', '.join(sorted(called))} instead of "
        f"{endpoint.namespace}/{endpoint.names.service}; the operator itself validates every job"
    )


def _new_secret(endpoint: WebhookEndpoint, data: Mapping[str, str]) -> Object:
    metadata = {"name": endpoint.names.secret, "namespace": endpoint.namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": dict(data)}


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""
