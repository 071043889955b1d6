"""The gate of a client is checked again just before a write is sent: it may have waited for a connection."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.requests import Request
from trainwright.objects.resources import PODS

POD = {"metadata": {"name": "one", "namespace": "team", "resourceVersion": "1"}}


class Closed(Unreachable):
    pass


class ClosingGate:
    """Lets so many questions pass."""

    def __init__(self, passes: int) -> None:
        self.passes = passes
        self.asked = 0

    def __call__(self, request: Request) -> None:
        self.asked += 1
        if self.asked > self.passes:
            raise Closed("not now")


WRITES: dict[str, Callable[[Client], Awaitable[object]]] = {
    "create": lambda client: client.create(PODS, POD),
    "replace": lambda client: client.replace(PODS, POD),
    "delete": lambda client: client.delete(PODS, "one", namespace="team"),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("passes", [0, 1])
async def test_gate_that_closes_while_a_write_waits_for_a_connection_stops_it(verb: str, passes: int) -> None:
    async with scripted_server() as server, Client(server.config, gate=ClosingGate(passes)) as client:
        server.will(answer(POD))
        with pytest.raises(Closed, match="not now"):
            await WRITES[verb](client)
        assert server.seen == []


async def test_a_gate_that_stays_open_lets_everything_through() -> None:
    async with scripted_server() as server:
        server.will(answer(POD), answer(POD))
        async with Client(server.config, gate=ClosingGate(100)) as client:
            assert await client.create(PODS, POD) == POD
            assert await client.get(PODS, "one", namespace="team") == POD
        assert [seen.method for seen in server.seen] == ["POST", "GET"]
        assert server.seen[0].headers["content-type"] == "application/json"
        assert int(server.seen[0].headers["content-length"]) == len(server.seen[0].body)
