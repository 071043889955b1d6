"""Keeps the admission webhooks reachable: certificates in their Secret, the authority in the cluster's configuration.

Every replica does this for itself, leader or not. They agree through the Secret: whoever writes first wins, and the
others take what is there. What somebody empties or applies again is mended when the watch shows it.
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
from trainwright.kube.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, Unreachable
from trainwright.kube.client.retries import backoff
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.resources import SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS, Resource
from trainwright.operator.options import WebhookOptions
from trainwright.operator.rbac import WEBHOOKS
from trainwright.operator.serving.health import Finding
from trainwright.operator.serving.http_server import Address, Page, first_of, serving
from trainwright.operator.serving.webhook_certificates import Certificates, load_into, read_certificates, renewed
from trainwright.operator.setup.permissions import missing_permission

log = logging.getLogger(__name__)

CHECK_SECONDS = 3600.0
"""How often the dates of the certificates are looked at if nothing else happens; they end 90 days after their due."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPlace:
    """Where the Secret and the Service are, where we listen, and how things are called."""

    namespace: str
    address: Address
    names: WebhookOptions = field(default_factory=WebhookOptions)


def names_to_serve(place: WebhookPlace, configuration: Object) -> set[str]:
    """The names under which the API server may call: the Service's, and the hosts of addresses that stand there."""
    clients = [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ()]
    hosts = (urlsplit(client["url"]).hostname for client in clients if client.get("url"))
    return {f"{place.names.service}.{place.namespace}.svc", *(host for host in hosts if host)}


def calls_us(place: WebhookPlace, configuration: Object) -> bool:
    """Whether any of its webhooks sends reviews to our Service, or to an address that stands there."""
    return any(_calls_us(place, webhook) for webhook in configuration.get("webhooks") or ())


def with_authority(place: WebhookPlace, configuration: Object, authority: bytes) -> Object | None:
    """The configuration with every webhook that calls us trusting the authority; None if they all do."""
    bundle = base64.b64encode(authority).decode()
    webhooks = configuration.get("webhooks") or []
    trusting = [
        {**webhook, "clientConfig": {**webhook["clientConfig"], "caBundle": bundle}}
        if _calls_us(place, webhook)
        else webhook
        for webhook in webhooks
    ]
    return None if trusting == webhooks else {**configuration, "webhooks": trusting}


def secret_data(secret: Object) -> dict[str, bytes]:
    """The decoded data; what is not base64 counts as empty."""
    return {key: _decoded(text) for key, text in (secret.get("data") or {}).items()}


class WebhookSetup:
    """`run` serves the pages as soon as the cluster has a configuration that sends reviews here. `finding` says how
    it stands; `port` is where it listens."""

    def __init__(
        self,
        client: Client,
        place: WebhookPlace,
        pages: Mapping[str, Page],
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.finding = Finding(well=False, detail="certificates are not ready")
        self.port = 0
        self._client = client
        self._place = place
        self._page = first_of(pages)
        self._clock = clock
        self._secrets: Store[Object] = Store(metadata=raw_metadata)
        self._configurations: Store[Object] = Store(metadata=raw_metadata)
        self._changed = asyncio.Event()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded: Certificates | None = None

    async def run(self) -> None:
        """Until it is cancelled. Returns only if we may not do this here; then webhooks are off."""
        for rule in WEBHOOKS.rules:
            namespace = self._place.namespace if rule.own_namespace else None
            if missing := await missing_permission(self._client, rule, namespace):
                self._switch_off(f"not allowed to {missing}")
                return
        reflectors = (
            self._reflector(SECRETS, self._secrets, self._place.names.secret, namespace=self._place.namespace),
            self._reflector(VALIDATING_WEBHOOK_CONFIGURATIONS, self._configurations, self._place.names.configuration),
        )
        async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
            for reflector in reflectors:
                group.create_task(reflector.run())
            for reflector in reflectors:
                await reflector.synced()
            await self._keep(stack)

    async def _keep(self, stack: AsyncExitStack) -> None:
        failures = 0
        while True:
            self._changed.clear()
            pause = CHECK_SECONDS
            try:
                await self._step(stack)
                failures = 0
            except Forbidden as error:
                self._switch_off(str(error))
            except (ApiError, Unreachable) as error:
                # Where another replica was quicker, the watch brings what it wrote.
                if not isinstance(error, Conflict | AlreadyExists):
                    self._find(Finding(well=False, detail=f"certificates are not ready: {error}"))
                jitter = random.random()  # noqa: S311
                pause = backoff(failures, jitter=jitter, first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
                failures += 1
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _step(self, stack: AsyncExitStack) -> None:
        place = self._place
        configuration = self._configurations.get(place.names.configuration)
        if configuration is None:
            missing = f"ValidatingWebhookConfiguration {place.names.configuration}"
            self._find(Finding(detail=f"off: there is no {missing}; the operator itself checks every job"))
            return
        if not calls_us(place, configuration):
            self._find(Finding(detail=_explain_stranger(place, configuration)), level=logging.WARNING)
            return
        certificates = await self._certificates(names_to_serve(place, configuration))
        if certificates != self._loaded:
            load_into(self._tls, certificates)
            self._loaded = certificates
        if not self.port:
            server = serving("--webhook-server-port", place.address, self._page, tls=self._tls)
            self.port = await stack.enter_async_context(server)
        if (trusting := with_authority(place, configuration, certificates.authority)) is not None:
            answer = await self._client.replace(VALIDATING_WEBHOOK_CONFIGURATIONS, trusting)
            self._configurations.remember(answer)
        self._find(Finding(detail=f"serving on port {self.port}"))

    async def _certificates(self, names: set[str]) -> Certificates:
        """Those in the Secret, made or renewed where they have to be."""
        place = self._place
        secret = self._secrets.get(f"{place.namespace}/{place.names.secret}")
        present = read_certificates(secret_data(secret)) if secret else None
        fresh = renewed(present, names, self._clock())
        if fresh is None and present is not None:
            return present
        assert fresh is not None  # noqa: S101 (for the type checker: without any there is always a fresh set)
        data = {key: base64.b64encode(value).decode() for key, value in fresh.as_data().items()}
        if secret is None:
            answer = await self._client.create(SECRETS, _new_secret(place, data))
        else:
            answer = await self._client.replace(SECRETS, {**secret, "data": {**(secret.get("data") or {}), **data}})
        log.info("wrote the webhooks' certificates to Secret %s/%s", place.namespace, place.names.secret)
        self._secrets.remember(answer)
        return fresh

    def _switch_off(self, why: str) -> None:
        """No reason not to work on the jobs that are there; but the API server takes no answer for a no."""
        there = f"while there is a ValidatingWebhookConfiguration {self._place.names.configuration}, jobs are refused"
        self._find(Finding(detail=f"off: {why}; {there}"), level=logging.WARNING)

    def _find(self, finding: Finding, *, level: int = logging.INFO) -> None:
        if finding != self.finding:
            self.finding = finding
            log.log(level if finding.well else logging.WARNING, "admission webhooks: %s", finding.detail)

    def _reflector(
        self, resource: Resource, store: Store[Object], name: str, *, namespace: str | None = None
    ) -> Reflector[Object]:
        return Reflector(
            self._client,
            resource,
            store,
            convert=lambda obj: obj,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            on_change=lambda _, __: self._changed.set(),
        )


def _calls_us(place: WebhookPlace, webhook: Object) -> bool:
    """Another operator's Service is not ours: with our authority the API server would no longer trust that one."""
    called = webhook.get("clientConfig") or {}
    service = called.get("service")
    if service is None:
        return bool(called.get("url"))
    return bool((service.get("namespace"), service.get("name")) == (place.namespace, place.names.service))


def _explain_stranger(place: WebhookPlace, configuration: Object) -> str:
    clients = [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ()]
    services = [client["service"] for client in clients if client.get("service")]
    called = {f"Service {service.get('namespace')}/{service.get('name')}" for service in services} or {"nobody"}
    return (
        f"off: {place.names.configuration} calls {', '.join(sorted(called))}, and not ours, "
        f"{place.namespace}/{place.names.service}; the operator itself checks every job"
    )


def _new_secret(place: WebhookPlace, data: Mapping[str, str]) -> Object:
    metadata = {"name": place.names.secret, "namespace": place.namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": dict(data)}


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return b""
