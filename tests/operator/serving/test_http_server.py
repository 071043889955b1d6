"""The operator's HTTP servers: addresses, routing, limits and shutdown."""

import asyncio
import io
import socket
import ssl
from datetime import UTC, datetime

import aiohttp
import pytest

from trainwright.kube.client.credentials import load_certificate
from trainwright.operator.options import OperatorError
from trainwright.operator.serving.http_server import Address, Request, Response, read_address, route, serving
from trainwright.operator.serving.webhook_certificates import renewed


async def echo(request: Request) -> Response:
    return Response(200, f"{request.path} {dict(request.query)}".encode() + request.body)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", Address("", 8080)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:9443", Address("::1", 9443)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses_are_written_as_in_go(text: str, address: Address | None) -> None:
    assert read_address("--metrics-bind-address", text) == address
    if address:
        assert str(address) == text


@pytest.mark.parametrize("text", ["8080", "localhost", ":http", ":65536", "::1:80", ":-1", ":²"])
def test_an_invalid_address_is_an_error_that_names_the_flag(text: str) -> None:
    with pytest.raises(OperatorError, match=r"--metrics-bind-address: .* is not an address: write HOST:PORT"):
        read_address("--metrics-bind-address", text)


async def test_requests_are_routed_by_path() -> None:
    handler = route({"/metrics": echo, "/healthz/": echo})
    async with serving("--x", Address("127.0.0.1", 0), handler) as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}"
        async with session.post(f"{url}/metrics?a=b", data=b"!") as response:
            assert (response.status, await response.text()) == (200, "/metrics {'a': 'b'}!")
        async with session.get(f"{url}/healthz/one") as response:
            assert (response.status, await response.text()) == (200, "/healthz/one {}")
        async with session.get(f"{url}/secrets") as response:
            assert response.status == 404


async def test_a_body_of_4_mib_is_accepted_and_one_of_9_mib_rejected() -> None:
    async with serving("--x", Address("127.0.0.1", 0), echo) as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/"
        async with session.post(url, data=io.BytesIO(bytes(4 * 2**20))) as response:
            assert (response.status, len(await response.read())) == (200, 4 * 2**20 + len("/ {}"))
        async with session.post(url, data=io.BytesIO(bytes(9 * 2**20))) as response:
            assert response.status == 413


async def test_a_port_in_use_is_an_error_that_names_the_flag() -> None:
    async with serving("--first", Address("127.0.0.1", 0), echo) as port:
        with pytest.raises(OperatorError, match=f"--second: cannot listen on 127.0.0.1:{port}: .*in use"):
            async with serving("--second", Address("127.0.0.1", port), echo):
                pass


async def test_shutdown_closes_connections_of_clients_that_never_close() -> None:
    certificates = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert certificates is not None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(tls, certificates.server, certificates.server_key)
    trusting = ssl.create_default_context(cadata=certificates.authority.decode())

    def connect(port: int) -> socket.socket:
        client = trusting.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(1000)
        return socket.socket(fileno=client.detach())

    def read_to_the_end(raw: socket.socket) -> None:
        """Until the TCP connection is closed, whatever TLS sends on it."""
        raw.settimeout(10)
        while raw.recv(1000):
            pass

    async with serving("--x", Address("127.0.0.1", 0), echo, tls=tls) as port:
        raw = await asyncio.to_thread(connect, port)
    with raw:
        await asyncio.to_thread(read_to_the_end, raw)
