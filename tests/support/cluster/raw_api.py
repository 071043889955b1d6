"""HTTP requests to any API server exactly as written, for tests of status codes, messages and headers."""

import io
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from yarl import URL

from trainwright.kube.client.kubeconfig import ClusterConfig

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True)
class Reply:
    code: int
    body: Any
    """Decoded JSON, or text if it is no JSON."""
    warnings: list[str] = field(default_factory=list)
    content_type: str = ""

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.body["metadata"]
        return metadata


class RawApi:
    """Sends requests; `namespace` is that of the test."""

    def __init__(self, session: aiohttp.ClientSession, server: str, namespace: str) -> None:
        self._session = session
        self._server = server
        self.namespace = namespace

    def path(self, plural: str, *rest: str, group: str = "api/v1") -> str:
        return "/".join(["", group, "namespaces", self.namespace, plural, *rest])

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        escaped: bool = False,
    ) -> Reply:
        """An `escaped` path is sent as it is; others are cleaned and escaped."""
        url = URL(self._server + path, encoded=escaped)
        text = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        data = None if text is None else io.BytesIO(text)
        sent = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {}) | dict(headers or {})
        async with self._session.request(method, url, data=data, headers=sent) as response:
            answer = await response.text()
            try:
                decoded = json.loads(answer)
            except ValueError:
                decoded = answer
            warnings = response.headers.getall("Warning", [])
            return Reply(response.status, decoded, list(warnings), response.headers.get("Content-Type", ""))

    async def get(self, path: str, accept: str = "application/json") -> Reply:
        return await self.send("GET", path, accept=accept)

    async def post(self, path: str, body: Any) -> Reply:
        return await self.send("POST", path, body)

    async def put(self, path: str, body: Any) -> Reply:
        return await self.send("PUT", path, body)

    async def patch(self, path: str, body: Any, content_type: str = MERGE) -> Reply:
        return await self.send("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, body: Any = None) -> Reply:
        return await self.send("DELETE", path, body)

    async def watch(self, path: str, accept: str = "application/json") -> AsyncGenerator[dict[str, Any], None]:
        """The events of a watch, until the server ends it."""
        async with self._session.get(self._server + path, headers={"Accept": accept}) as response:
            assert response.status == 200, await response.text()
            connection = response.connection
            # Lines of any length: aiohttp's own line reader gives up at 64 KiB.
            rest = b""
            try:
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, lines):
                        yield json.loads(line)
            finally:
                # Closing an open stream would otherwise wait for the server after the test.
                if connection is not None and connection.transport is not None:
                    connection.transport.abort()


@asynccontextmanager
async def raw_api(config: ClusterConfig, namespace: str) -> AsyncIterator[RawApi]:
    context = ssl.create_default_context(cadata=(config.ca_data or b"").decode())
    connector = aiohttp.TCPConnector(ssl=context)
    headers = {"Authorization": f"Bearer {config.token}", "User-Agent": "conformance/1"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield RawApi(session, config.server, namespace)
