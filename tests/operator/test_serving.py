"""Where the operator's pages listen, and what becomes of an address that cannot be."""

import aiohttp
import pytest

from trainwright.operator.options import OperatorError
from trainwright.operator.serving import Address, Call, Reply, first_of, read_address, serving


async def echo(call: Call) -> Reply:
    return Reply(200, f"{call.path} {dict(call.query)}".encode() + call.body)


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
    pages = first_of({"/metrics": echo, "/healthz/": echo})
    async with serving("--x", Address("127.0.0.1", 0), pages) as port, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{port}"
        async with session.post(f"{url}/metrics?a=b", data=b"!") as answer:
            assert (answer.status, await answer.text()) == (200, "/metrics {'a': 'b'}!")
        async with session.get(f"{url}/healthz/one") as answer:
            assert (answer.status, await answer.text()) == (200, "/healthz/one {}")
        async with session.get(f"{url}/secrets") as answer:
            assert answer.status == 404


async def test_a_port_that_is_taken_is_an_error_of_the_flag() -> None:
    async with serving("--first", Address("127.0.0.1", 0), echo) as port:
        with pytest.raises(OperatorError, match=f"--second: cannot listen on 127.0.0.1:{port}: .*in use"):
            async with serving("--second", Address("127.0.0.1", port), echo):
                pass
