"""Thousands of requests that no client would send: the server answers each of them, never with 500, never with a
traceback in its log, and no callback of its event loop takes long.

The requests come from the server's own OpenAPI documents, as those of schemathesis do. It would not get further: the
documents of Kubernetes' API have no bodies of patches and no subresources, where most mistakes are.
"""

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.cluster.measured_cluster import MeasuredCluster, measured_cluster
from tests.support.objects.fuzzed_requests import FuzzedRequest, RequestFuzzer, ServedKind, kinds_of
from tests.support.objects.widgets import definition
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS

REQUESTS = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "all" else 300


class Connection:
    """One connection after the other: some requests end it."""

    def __init__(self, cluster: MeasuredCluster) -> None:
        config = cluster.config
        self._token = config.token
        context = ssl.create_default_context(cadata=(config.ca_data or b"").decode())
        host = config.server.removeprefix("https://")
        self._connection = http.client.HTTPSConnection(host, context=context, timeout=60)

    def send(self, request: FuzzedRequest) -> tuple[int, bytes]:
        """The status, and the body if it is not a stream."""
        headers = {"Authorization": f"Bearer {self._token}", **request.headers}
        try:
            self._connection.request(request.method, request.path, body=request.body, headers=headers)
            response = self._connection.getresponse()
        except (ConnectionError, ssl.SSLError):
            self._connection.close()
            self._connection.request(request.method, request.path, body=request.body, headers=headers)
            response = self._connection.getresponse()
        with response:
            if response.getheader("Transfer-Encoding") == "chunked":
                self._connection.close()
                return response.status, b""
            return response.status, response.read()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredCluster]:
    with measured_cluster(tmp_path_factory.mktemp("fuzzing")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connection(cluster: MeasuredCluster) -> Iterator[Connection]:
    with closing(Connection(cluster)) as connection:
        yield connection


@pytest.fixture(scope="module")
def kinds(connection: Connection) -> list[ServedKind]:
    for crd in [*(render_crd(kind) for kind in KINDS.values()), definition()]:
        body = json.dumps(crd).encode()
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        assert connection.send(FuzzedRequest("POST", path, {"Content-Type": "application/json"}, body))[0] == 201
    index = json.loads(connection.send(FuzzedRequest("GET", "/openapi/v3"))[1])
    return [
        kind
        for entry in index["paths"].values()
        for kind in kinds_of(json.loads(connection.send(FuzzedRequest("GET", entry["serverRelativeURL"]))[1]))
    ]


@pytest.mark.timeout(900)
def test_every_request_is_answered(cluster: MeasuredCluster, connection: Connection, kinds: list[ServedKind]) -> None:
    @settings(
        max_examples=REQUESTS,
        database=None,
        phases=[Phase.generate],  # the server has a state: a smaller request would be another matter
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=True))
    def send(random: Random) -> None:
        request = RequestFuzzer(random, kinds).request()
        status, body = connection.send(request)
        assert status != 500, f"{request}: {body!r}"
        assert cluster.complaints() == "", str(request)

    send()
