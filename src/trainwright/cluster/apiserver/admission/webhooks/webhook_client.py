"""Sends reviews to webhooks: over HTTPS to a URL or to the endpoints of a Service, or to a service of this process."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from trainwright.cluster.apiserver.admission.webhooks.registered_webhooks import Webhook
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PODS, SERVICES
from trainwright.objects.selectors import read_label_selector

LocalService = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]
"""A server in this process: from the path and the body of a POST to the status code and the body of the answer."""

_MAX_RESPONSE = 8 * 1024 * 1024
_ENDPOINTS = "endpoints"


class WebhookCallError(Exception):
    """The webhook could not be reached or did not answer; the message says why."""


@dataclass(frozen=True, slots=True)
class _Target:
    url: str
    """The address to connect to."""
    name: str
    """Host and port as the user wrote them, for messages and the Host header."""
    server_name: str
    """The name in the server's certificate."""


class WebhookClient:
    """`local_services` are called directly; every other Service is reached at a ready pod or an endpoint."""

    def __init__(
        self, store: ObjectStore, local_services: Mapping[tuple[str, str], LocalService] | None = None
    ) -> None:
        self._store = store
        self._local = local_services or {}
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[bytes, ssl.SSLContext] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(self, webhook: Webhook, body: bytes) -> bytes:
        """The body of the answer; raises WebhookCallError."""
        service = webhook.client.get("service")
        if service and (local := self._local.get((service["namespace"], service["name"]))):
            code, answer = await local(service.get("path") or "/", body)
            return _checked(code, answer)
        shown = _shown_url(webhook.client, webhook.timeout)
        try:
            async with asyncio.timeout(webhook.timeout):
                return await self._post(webhook, body)
        except TimeoutError as error:
            raise WebhookCallError(f'Post "{shown}": context deadline exceeded') from error
        except (aiohttp.ClientError, OSError, ValueError, LookupError) as error:
            raise WebhookCallError(f'Post "{shown}": {_cause(error)}') from error

    async def _post(self, webhook: Webhook, body: bytes) -> bytes:
        target = self._target(webhook.client)
        context = self._contexts.get(webhook.authority)
        if context is None:
            context = await asyncio.to_thread(_context, webhook.authority)
            self._contexts[webhook.authority] = context
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False)
        async with self._session.post(
            target.url,
            params={"timeout": f"{webhook.timeout}s"},
            data=body,
            headers={"Content-Type": "application/json", "Accept": "application/json", "Host": target.name},
            ssl=context,
            server_hostname=target.server_name,
            allow_redirects=False,
        ) as response:
            answer = await response.content.read(_MAX_RESPONSE)
            return _checked(response.status, answer)

    def _target(self, client: Object) -> _Target:
        if url := client.get("url"):
            parts = urlsplit(url)
            host = parts.hostname or ""
            return _Target(url, parts.netloc, host)
        service = client["service"]
        name, namespace, port = service["name"], service["namespace"], service.get("port", 443)
        address = self._endpoint(namespace, name, port)
        server = f"{name}.{namespace}.svc"
        return _Target(f"https://{address}{service.get('path') or '/'}", f"{server}:{port}", server)

    def _endpoint(self, namespace: str, name: str, port: int) -> str:
        stored = self._store.get(SERVICES.qualified_plural, namespace, name)
        if stored is None:
            raise LookupError(f'service "{name}" not found')
        spec = stored.obj.get("spec") or {}
        wanted = next((served for served in spec.get("ports") or () if served.get("port") == port), None)
        if wanted is None:
            raise LookupError(f'no service port {port} found for service "{name}"')
        found = self._pod_addresses(namespace, spec["selector"], wanted) if spec.get("selector") else None
        address = next(found or self._endpoint_addresses(namespace, name, wanted), None)
        if address is None:
            raise LookupError(f'no endpoints available for service "{name}"')
        return address

    def _pod_addresses(self, namespace: str, selector: Object, port: Object) -> Iterator[str]:
        labels = read_label_selector({"matchLabels": selector})
        for stored in self._store.list(PODS.qualified_plural, namespace):
            pod = stored.obj
            ready = is_condition_true(pod.get("status") or {}, "Ready")
            address = value_at(pod, "status", "podIP")
            number = _target_port(pod, port.get("targetPort") or port["port"])
            if ready and address and number and labels.matches(pod["metadata"].get("labels") or {}):
                yield f"{address}:{number}"

    def _endpoint_addresses(self, namespace: str, name: str, port: Object) -> Iterator[str]:
        stored = self._store.get(_ENDPOINTS, namespace, name)
        for subset in (stored.obj.get("subsets") if stored else None) or ():
            for served in subset.get("ports") or ():
                if served.get("name", "") == port.get("name", ""):
                    yield from (f"{address['ip']}:{served['port']}" for address in subset.get("addresses") or ())


def _target_port(pod: Object, target: Any) -> int | None:
    if isinstance(target, int):
        return target
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    return next((int(port["containerPort"]) for port in ports if port.get("name") == target), None)


def _context(authority: bytes) -> ssl.SSLContext:
    """Trusts the webhook's caBundle; without one the machine's authorities."""
    return ssl.create_default_context(cadata=authority.decode() if authority else None)


def _checked(code: int, answer: bytes) -> bytes:
    if 200 <= code < 300:
        return answer
    if code == 404:
        raise WebhookCallError("the server could not find the requested resource")
    text = answer[:200].decode(errors="replace").strip()
    if code >= 500:
        raise WebhookCallError(f'an error on the server ("{text}") has prevented the request from succeeding')
    raise WebhookCallError(f"the server rejected our request for an unknown reason ({code}: {text})")


def _shown_url(client: Object, timeout: int) -> str:
    url = client.get("url")
    if not url:
        service = client["service"]
        host = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
        url = f"https://{host}{service.get('path') or '/'}"
    return f"{url}?timeout={timeout}s"


def _cause(error: Exception) -> str:
    """Go's words for the usual causes."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    return str(error) or type(error).__name__
