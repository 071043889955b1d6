"""Tokens of service accounts: what is requested, and when they are renewed."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.embedded_apiserver import running_embedded
from trainwright.cluster.node.pods.service_account_tokens import (
    ServiceAccountTokens,
    parse_token,
    read_token,
    token_request,
)
from trainwright.cluster.node.referenced_objects import PodConfigError, TokenSource
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import PODS, SERVICE_ACCOUNTS
from trainwright.objects.times import format_time

NOW = datetime(2026, 11, 16, 2, tzinfo=UTC)
SOURCE = TokenSource("", 600)
POD: Object = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"serviceAccountName": "trainer"}}


def response(seconds: int) -> Object:
    expires = format_time(NOW + timedelta(seconds=seconds))
    return {"spec": {"expirationSeconds": seconds}, "status": {"token": "t", "expirationTimestamp": expires}}


def jwt(**claims: object) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'ES256'})}.{part(claims)}.signature"


def test_a_token_is_bound_to_its_pod() -> None:
    assert token_request(POD, TokenSource("vault", 600)) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": "trainer", "namespace": "ns"},
        "spec": {
            "audiences": ["vault"],
            "expirationSeconds": 600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
        },
    }
    assert token_request(POD, TokenSource())["spec"]["audiences"] == []


@pytest.mark.parametrize(
    ("seconds", "renewed_after"), [(600, 480), (3600, 2880), (86_400, 69_120), (10 * 86_400, 86_400)]
)
def test_a_token_is_renewed_after_four_fifths_of_its_life_but_within_a_day(seconds: int, renewed_after: int) -> None:
    assert read_token(response(seconds)).renew_at == NOW + timedelta(seconds=renewed_after)
    assert read_token(response(seconds)).expires_at == NOW + timedelta(seconds=seconds)


def test_a_token_that_was_written_by_an_earlier_agent_is_renewed_at_the_same_time() -> None:
    issued = int(NOW.timestamp())
    found = parse_token(jwt(iat=issued, exp=issued + 600))
    assert found is not None
    assert found.renew_at == read_token(response(600)).renew_at
    extended = parse_token(jwt(iat=issued, exp=issued + 31_536_000, **{"kubernetes.io": {"warnafter": issued + 3607}}))
    assert extended is not None
    assert extended.expires_at == NOW + timedelta(seconds=3607)


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "a.e30.c", jwt(iat="x", exp=1), jwt(iat=1, exp=10**30)])
def test_a_token_that_cannot_be_read_is_requested_anew(text: str) -> None:
    assert parse_token(text) is None


@given(st.text(max_size=40))
def test_no_text_is_an_error(text: str) -> None:
    assert parse_token(text) is None or "." in text


# On an API server


@dataclass
class Requested:
    """The tokens of one pod on an API server."""

    client: Client
    pod: Object
    now: datetime

    def agent(self) -> ServiceAccountTokens:
        return ServiceAccountTokens(self.client, clock=lambda: self.now)

    async def get(self, tokens: ServiceAccountTokens) -> str:
        return await tokens.get(self.pod, SOURCE)


@pytest.fixture
async def requested() -> AsyncIterator[Requested]:
    async with running_embedded() as embedded, Client(embedded.config) as client:
        yield Requested(client, await _pod(client), datetime.now(UTC))


async def test_a_token_is_kept_until_it_is_due_and_then_renewed(requested: Requested) -> None:
    tokens, uid = requested.agent(), requested.pod["metadata"]["uid"]
    first = await requested.get(tokens)
    assert await requested.get(tokens) == first
    due = tokens.next_renewal(uid)
    assert due is not None
    assert 470 < (due - requested.now).total_seconds() < 490

    requested.now += timedelta(seconds=500)
    second = await requested.get(tokens)
    assert second != first

    tokens.forget(uid)
    assert tokens.next_renewal(uid) is None


async def test_a_token_that_cannot_be_renewed_is_used_until_it_expires(requested: Requested) -> None:
    tokens = requested.agent()
    first = await requested.get(tokens)
    await requested.client.delete(SERVICE_ACCOUNTS, "trainer", namespace="default")
    requested.now += timedelta(seconds=500)
    assert await requested.get(tokens) == first

    requested.now += timedelta(seconds=200)
    with pytest.raises(PodConfigError, match='failed to fetch token: serviceaccounts "trainer" not found'):
        await requested.get(tokens)


async def test_a_token_of_an_earlier_agent_is_taken_over(requested: Requested) -> None:
    first = await requested.get(requested.agent())
    tokens = requested.agent()
    tokens.adopt(requested.pod, SOURCE, first)
    assert await requested.get(tokens) == first


async def _pod(client: Client) -> Object:
    metadata = {"name": "trainer", "namespace": "default"}
    await client.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    spec = {"serviceAccountName": "trainer", "containers": [{"name": "main", "image": "i"}]}
    return await client.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    )
