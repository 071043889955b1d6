"""Where the operator's pages listen, and what becomes of an address that cannot be."""

import asyncio
import io
import socket
import ssl
from datetime import UTC, datetime

import aiohttp
import pytest

from trainwright.operator.options import OperatorError
from trainwright.operator.serving.http_server import Address, Request, Response, read_address, route, serving
from trainwright.operator.serving.webhook_certificates import load_into, renewed


async def echo(call: Request) -> Response:
    return Response(200, f"{call.path} {dict(call.query)}".encode() + call.body)


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
def test_an_address_that_cannot_be_is_refused_with_its_flag(text: str) -> None:
    with pytest.raises(OperatorError, match=r"--metrics-bind-address: .* is not an address: write HOST:PORT"):
        read_address("--metrics-bind-address", text)


async def test_a_page_is_served_until_the_block_ends() -> None:
    pages = route({"/metrics": echo, "/healthz/": echo})
    async with serving("--x", Address("127.0.0.1", 0), pages) as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}"
        async with session.post(f"{url}/metrics?a=b", data=b"!") as answer:
            assert (answer.status, await answer.text()) == (200, "/metrics {'a': 'b'}!")
        async with session.get(f"{url}/healthz/one") as answer:
            assert (answer.status, await answer.text()) == (200, "/healthz/one {}")
        async with session.get(f"{url}/secrets") as answer:
            assert answer.status == 404


async def test_a_body_as_big_as_reviews_get_is_read_and_a_bigger_one_refused() -> None:
    async with serving("--x", Address("127.0.0.1", 0), echo) as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}/"
        async with session.post(url, data=io.BytesIO(bytes(4 * 2**20))) as answer:
            assert (answer.status, len(await answer.read())) == (200, 4 * 2**20 + len("/ {}"))
        async with session.post(url, data=io.BytesIO(bytes(9 * 2**20))) as answer:
            assert answer.status == 413


async def test_a_port_that_is_taken_is_an_error_of_the_flag() -> None:
    async with serving("--first", Address("127.0.0.1", 0), echo) as port:
        with pytest.raises(OperatorError, match=f"--second: cannot listen on 127.0.0.1:{port}: .*in use"):
            async with serving("--second", Address("127.0.0.1", port), echo):
                pass


async def test_a_client_that_never_says_goodbye_is_hung_up_on() -> None:
    certificates = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert certificates is not None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_into(tls, certificates)
    trusting = ssl.create_default_context(cadata=certificates.authority.decode())

    def ask(port: int) -> socket.socket:
        client = trusting.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1")
        client.sendall(b"GET / HTTP/1.1\r\nHost: us\r\n\r\n")
        client.recv(1000)
        return socket.socket(fileno=client.detach())

    def read_to_the_end(raw: socket.socket) -> None:
        """Of the connection, not of what TLS says on it."""
        raw.settimeout(10)
        while raw.recv(1000):
            pass

    async with serving("--x", Address("127.0.0.1", 0), echo, tls=tls) as port:
        raw = await asyncio.to_thread(ask, port)
    with raw:
        await asyncio.to_thread(read_to_the_end, raw)
