"""Tokens of service accounts for pods: requested from the API server, renewed before they expire."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.cluster.node.pod_fields import service_account_of
from trainwright.cluster.node.referenced_objects import PodConfigError, TokenSource
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError
from trainwright.objects import Object
from trainwright.objects.resources import SERVICE_ACCOUNTS
from trainwright.objects.times import parse_time

_LONGEST_USE = timedelta(hours=24)
_USED_SHARE = 0.8
"""The part of its life after which a token is renewed, as by the kubelet."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    renew_at: datetime
    expires_at: datetime


class ServiceAccountTokens:
    """The present tokens of the pods of this node."""

    def __init__(self, client: Client, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[str, dict[TokenSource, Token]] = {}
        """By uid of the pod."""

    async def get(self, pod: Object, source: TokenSource) -> str:
        """The token that a file of the pod should have now; raises PodConfigError if there is none.

        A token that cannot be renewed is used until it expires.
        """
        tokens = self._tokens.setdefault(pod["metadata"]["uid"], {})
        now, known = self._clock(), tokens.get(source)
        if known is not None and now < known.renew_at:
            return known.text
        metadata = pod["metadata"]
        request = token_request(pod, source)
        try:
            answer = await self._client.create(
                SERVICE_ACCOUNTS, request, namespace=metadata["namespace"], subresource="token"
            )
        except ApiError as error:
            if known is not None and now < known.expires_at:
                return known.text
            raise PodConfigError(f"failed to fetch token: {error}") from error
        tokens[source] = read_token(answer)
        return tokens[source].text

    def adopt(self, pod: Object, source: TokenSource, text: str) -> None:
        """Takes over a token that an earlier agent has requested."""
        if (token := parse_token(text)) is not None:
            self._tokens.setdefault(pod["metadata"]["uid"], {}).setdefault(source, token)

    def next_renewal(self, uid: str) -> datetime | None:
        """When the first token of the pod must be renewed; None if it has none."""
        return min((token.renew_at for token in self._tokens.get(uid, {}).values()), default=None)

    def forget(self, uid: str) -> None:
        self._tokens.pop(uid, None)


def token_request(pod: Object, source: TokenSource) -> Object:
    """A TokenRequest; the token is valid as long as the pod exists."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {"name": service_account_of(pod), "namespace": metadata["namespace"]},
        "spec": {
            "audiences": [source.audience] if source.audience else [],
            "expirationSeconds": source.expiration_seconds,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
        },
    }


def read_token(request: Object) -> Token:
    """The token of a TokenRequest with its status. The server may have changed how long it is valid."""
    expires_at = parse_time(request["status"]["expirationTimestamp"])
    seconds = int(request["spec"].get("expirationSeconds") or 0)
    return _token(str(request["status"]["token"]), expires_at - timedelta(seconds=seconds), expires_at)


def parse_token(text: str) -> Token | None:
    """A token by its claims; None if they cannot be read. `warnafter` is when an extended token should be renewed."""
    try:
        payload = text.split(".")[1]
        claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        issued, expires = int(claims["iat"]), int(claims["exp"])
        expires = min(expires, int((claims.get("kubernetes.io") or {}).get("warnafter", expires)))
        return _token(text, datetime.fromtimestamp(issued, UTC), datetime.fromtimestamp(expires, UTC))
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError, OSError):
        return None


def _token(text: str, issued_at: datetime, expires_at: datetime) -> Token:
    used = min((expires_at - issued_at) * _USED_SHARE, _LONGEST_USE)
    return Token(text, issued_at + used, expires_at)
