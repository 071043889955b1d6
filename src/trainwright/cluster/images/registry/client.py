"""Requests to one registry: authentication, retries, and errors with the registry's words."""

import asyncio
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from time import time
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp

from trainwright import __version__
from trainwright.cluster.images.registry.authentication import Authenticator
from trainwright.cluster.images.registry.credentials import Credential
from trainwright.cluster.images.registry.errors import (
    AccessDeniedError,
    CutConnectionError,
    NotFoundError,
    RegistryError,
    TooManyRequestsError,
    UnreachableRegistryError,
    words_of,
)
from trainwright.cluster.images.registry.settings import Endpoint, RegistrySettings, endpoints, tls_context

_LARGEST_ERROR = 64 << 10
_READ_BUFFER = 1 << 20
_CHALLENGES = 3
"""Without credentials, with a token, and with a new token in place of one that has expired."""
_T = TypeVar("_T")
_RETRIED = (500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Body:
    """A body of a request that can be sent again."""

    open: Callable[[], Any]
    size: int
    media_type: str = "application/octet-stream"
    is_idempotent: bool = False
    """True if it may be sent to the same address again after a part of it has arrived there."""


class RegistryClient:
    """A registry at one endpoint, with one credential or none."""

    def __init__(self, endpoint: Endpoint, credential: Credential | None, settings: RegistrySettings) -> None:
        self.endpoint = endpoint
        self.settings = settings
        self.slots = asyncio.Semaphore(settings.parallel)
        self._credential = credential
        self._scheme = endpoint.schemes[0] if len(endpoint.schemes) == 1 else None

    async def __aenter__(self) -> Self:
        settings = self.settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls_context(self.endpoint.host), limit=settings.parallel * 2),
            timeout=aiohttp.ClientTimeout(sock_connect=settings.connect_seconds, sock_read=settings.read_seconds),
            read_bufsize=_READ_BUFFER,
            auto_decompress=False,
            # Digests are those of the bytes that are sent.
            headers={"User-Agent": f"trainwright/{__version__}", "Accept-Encoding": "identity"},
        )
        self._authenticator = Authenticator(
            self._session, self.endpoint.registry, self._credential, secure=self.endpoint.is_secure
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def url(self, path: str) -> str:
        """An absolute address; chooses HTTPS or HTTP if the endpoint allows both."""
        if self._scheme is None:
            self._scheme = await self._choose_scheme()
        return f"{self._scheme}://{self.endpoint.host}{path}"

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        accept: tuple[int, ...] = (200,),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response with an accepted status. `path` may also be an absolute address."""
        url = path if "://" in path else await self.url(path)
        pause = self.settings.first_pause
        for attempt in range(1, self.settings.attempts + 1):
            is_last = attempt == self.settings.attempts
            try:
                response = await self._send(method, url, scope, headers or {}, body)
            except CutConnectionError:
                if is_last or (body is not None and not body.is_idempotent):
                    raise
            else:
                if response.status in accept:
                    break
                error, wanted_pause = await self._refusal(response)
                if is_last or wanted_pause is None or wanted_pause > self.settings.longest_pause:
                    raise error
                pause = max(pause, wanted_pause)
            await asyncio.sleep(pause)
            pause *= 2
        try:
            yield response
        finally:
            response.close()

    async def repeated(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Calls it again, after a pause, while the connection is cut."""
        pause = self.settings.first_pause
        for _ in range(self.settings.attempts - 1):
            with suppress(CutConnectionError):
                return await attempt()
            await asyncio.sleep(pause)
            pause *= 2
        return await attempt()

    async def _send(
        self, method: str, url: str, scope: str, headers: Mapping[str, str], body: Body | None
    ) -> aiohttp.ClientResponse:
        is_ours = urlsplit(url).netloc == self.endpoint.host
        for _ in range(_CHALLENGES):
            authorization = await self.connected(self._authenticator.header(scope)) if is_ours else None
            sent = {**headers, **({"Authorization": authorization} if authorization else {})}
            if body is not None:
                sent |= {"Content-Length": str(body.size), "Content-Type": body.media_type}
            request = self._session.request(
                method,
                url,
                headers=sent,
                data=body.open() if body is not None else None,
                allow_redirects=method in ("GET", "HEAD"),
                proxy=_proxy(url),
            )
            response = await self.connected(request)
            challenges = response.headers.getall("WWW-Authenticate", [])
            if response.status == 401 and is_ours and self._authenticator.challenged(challenges, scope, authorization):
                response.close()
                continue
            break
        return response

    async def connected(self, request: Awaitable[_T]) -> _T:
        """Turns the failures of a connection into errors of the registry."""
        name = self.endpoint.registry
        try:
            return await request
        except aiohttp.ClientConnectorCertificateError as error:
            raise RegistryError(f"{name} has a certificate that is not trusted: {error.certificate_error}") from error
        except aiohttp.ClientSSLError as error:
            raise RegistryError(
                f"{name} does not speak TLS ({_cause(error)}); if it is a plain HTTP registry, use --plain-http"
            ) from error
        except (aiohttp.InvalidURL, aiohttp.TooManyRedirects, aiohttp.NonHttpUrlClientError) as error:
            raise RegistryError(f"{name} redirects to an address that cannot be used: {_cause(error)}") from error
        except aiohttp.ConnectionTimeoutError as error:
            seconds = f"{self.settings.connect_seconds:g}"
            raise UnreachableRegistryError(f"{name} is unreachable: no connection within {seconds} s") from error
        except TimeoutError as error:
            seconds = f"{self.settings.read_seconds:g}"
            raise CutConnectionError(f"{name} does not answer: nothing received for {seconds} s") from error
        except aiohttp.ClientConnectorError as error:
            raise UnreachableRegistryError(f"{name} is unreachable: {_cause(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise CutConnectionError(f"{name} cut the connection: {_cause(error)}") from error

    async def _refusal(self, response: aiohttp.ClientResponse) -> tuple[RegistryError, float | None]:
        """The error for a response, and how many seconds later the request may be sent again; None for never."""
        name = self.endpoint.registry
        try:
            body = await response.content.read(_LARGEST_ERROR)
        except (aiohttp.ClientError, OSError, TimeoutError):
            body = b""
        finally:
            response.close()
        words = words_of(body, response.status, response.reason or "")
        if response.status in (401, 403):
            hint = "" if self._credential else f"; log in with `trainwright image login {name}`"
            return AccessDeniedError(f"{name} denied access: {words}{hint}"), None
        if response.status == 404:
            return NotFoundError(f"{name}: {words}"), None
        if response.status == 429:
            return TooManyRequestsError(f"{name}: too many requests: {words}"), _retry_after(response)
        retry = _retry_after(response) if response.status in _RETRIED else None
        return RegistryError(f"{name} answered {response.status}: {words}"), retry

    async def _choose_scheme(self) -> str:
        """The first scheme in which the registry answers at all."""
        for scheme in self.endpoint.schemes[:-1]:
            url = f"{scheme}://{self.endpoint.host}/v2/"
            try:
                async with self._session.get(url, allow_redirects=False, proxy=_proxy(url)):
                    return scheme
            except aiohttp.ClientConnectorCertificateError:
                return scheme  # the request will name what is wrong with the certificate
            except (aiohttp.ClientError, OSError, TimeoutError, ssl.SSLError):
                continue
        return self.endpoint.schemes[-1]


async def with_accepted_credential(
    endpoint: Endpoint,
    credentials: Iterable[Credential | None],
    settings: RegistrySettings,
    use: Callable[[RegistryClient], Awaitable[_T]],
) -> _T:
    """Calls `use` with one credential after the other until the registry accepts one; raises the first refusal."""
    refusal: AccessDeniedError | None = None
    for credential in credentials:
        try:
            async with RegistryClient(endpoint, credential, settings) as client:
                return await use(client)
        except AccessDeniedError as error:
            refusal = refusal or error
    assert refusal is not None  # noqa: S101 - there is a credential, or None for an anonymous request
    raise refusal


async def run_together(transfers: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Their results. The first failure ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            started = [tasks.create_task(transfer) for transfer in transfers]
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    return [task.result() for task in started]


async def check_credential(server: str, credential: Credential, settings: RegistrySettings) -> None:
    """Raises AccessDeniedError unless the registry accepts the credential."""
    endpoint = endpoints(server, settings, with_mirrors=False)[0]
    async with (
        RegistryClient(endpoint, credential, settings) as client,
        client.request("GET", "/v2/", scope="") as response,
    ):
        await client.connected(response.content.read(_LARGEST_ERROR))


def _retry_after(response: aiohttp.ClientResponse) -> float:
    text = response.headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _proxy(url: str) -> str | None:
    parts = urlsplit(url)
    if not parts.hostname or urllib.request.proxy_bypass(parts.hostname):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _cause(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        # asyncio writes a text of its own in place of the system's.
        return os.strerror(number) if number and number > 0 else error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__
