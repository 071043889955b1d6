"""The two servers of the conformance tests: the embedded one and the real kube-apiserver."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.raw_api import RawApi, raw_api
from trainwright.kube.client.kubeconfig import ClusterConfig


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
def real_server(request: pytest.FixtureRequest) -> tuple[ClusterConfig, str] | None:
    """The configuration of the real server and a namespace on it; None for the embedded server."""
    if request.param == "embedded":
        return None
    plane = request.getfixturevalue("control_plane")
    return plane.config, request.getfixturevalue("real_namespace")


@pytest.fixture
async def api(real_server: tuple[ClusterConfig, str] | None) -> AsyncIterator[RawApi]:
    """A client of the embedded server, then of the real one."""
    async with AsyncExitStack() as stack:
        if real_server is None:
            embedded = await stack.enter_async_context(running_embedded(admits_accounts=True))
            config, namespace = embedded.config, "default"
        else:
            config, namespace = real_server
        api = await stack.enter_async_context(raw_api(config, namespace))
        if real_server is None:  # as `real_namespace` does on the real server
            await api.post(api.path("serviceaccounts"), {"metadata": {"name": "default"}})
        async with asyncio.timeout(120):
            yield api
