"""Authentication of registries: challenges, tokens and what to send with a request."""

import asyncio
import base64
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from trainwright.cluster.images.registry.credentials import Credential
from trainwright.cluster.images.registry.errors import AccessDeniedError, RegistryError, words_of

_PARAMETER = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_LARGEST_ANSWER = 1 << 20
_SHORTEST_LIFE = 60.0
"""Tokens live at least a minute, says the specification."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a registry wants: `Basic`, or `Bearer` with a token of the server `realm`."""

    scheme: str
    realm: str = ""
    service: str = ""


def read_challenges(headers: Iterable[str]) -> Challenge | None:
    """The first that is supported; tokens before passwords."""
    found = []
    for header in headers:
        scheme, _, rest = header.strip().partition(" ")
        parameters = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
        if scheme.lower() == "bearer" and parameters.get("realm"):
            return Challenge("Bearer", parameters["realm"], parameters.get("service", ""))
        if scheme.lower() == "basic":
            found.append(Challenge("Basic"))
    return found[0] if found else None


class Authenticator:
    """The Authorization header for one registry and one credential; it keeps tokens until they expire."""

    def __init__(
        self, session: aiohttp.ClientSession, registry: str, credential: Credential | None, *, secure: bool
    ) -> None:
        self._session = session
        self._registry = registry
        self._credential = credential
        self._secure = secure
        self._challenge: Challenge | None = None
        self._tokens: dict[str, tuple[str, float]] = {}
        self._lock = asyncio.Lock()

    async def header(self, scope: str) -> str | None:
        """None before the first challenge: then the request is sent without."""
        if self._challenge is None:
            return None
        if self._challenge.scheme == "Basic":
            return _basic(self._credential) if self._credential else None
        async with self._lock:
            token, expires = self._tokens.get(scope, ("", 0.0))
            if time.monotonic() >= expires:
                token, life = await self._fetch_token(self._challenge, scope)
                self._tokens[scope] = (token, time.monotonic() + life * 0.9)
            return f"Bearer {token}"

    def challenged(self, headers: Iterable[str], scope: str, sent: str | None) -> bool:
        """Takes the challenge of a 401. False if the same request would be refused again."""
        challenge = read_challenges(headers)
        if challenge is None or (challenge.scheme == "Basic" and self._credential is None):
            return False
        if sent is not None and challenge == self._challenge:
            # A token may have expired early; a password does not.
            return challenge.scheme == "Bearer" and self._tokens.pop(scope, None) is not None
        self._challenge = challenge
        return True

    async def _fetch_token(self, challenge: Challenge, scope: str) -> tuple[str, float]:
        realm = urlsplit(challenge.realm)
        if realm.scheme not in ("https", "http") or not realm.hostname:
            raise RegistryError(f"{self._registry} names {challenge.realm[:200]!r} as its token server")
        if realm.scheme == "http" and self._secure and self._credential is not None:
            raise RegistryError(f"{self._registry} wants credentials sent to {challenge.realm} without encryption")
        answer = await self._ask(challenge, scope)
        token = answer.get("token") or answer.get("access_token")
        if not isinstance(token, str) or not token or not token.isprintable():
            raise RegistryError(f"the token server of {self._registry} sent no token")
        life = answer.get("expires_in")
        return token, max(float(life), _SHORTEST_LIFE) if isinstance(life, int | float) else _SHORTEST_LIFE

    async def _ask(self, challenge: Challenge, scope: str) -> dict[str, Any]:
        credential = self._credential
        query = [("service", challenge.service)] if challenge.service else []
        scopes = [("scope", part) for part in scope.split(" ") if part]
        if credential is not None and credential.identity_token:
            form = dict(query) | {
                "scope": scope,
                "grant_type": "refresh_token",
                "refresh_token": credential.identity_token,
                "client_id": "trainwright",
            }
            request = self._session.post(challenge.realm, data=form, allow_redirects=False)
        elif credential is not None:
            parameters = [*query, *scopes, ("account", credential.username)]
            headers = {"Authorization": _basic(credential)}
            request = self._session.get(challenge.realm, params=parameters, headers=headers)
        else:
            request = self._session.get(challenge.realm, params=[*query, *scopes])
        async with request as response:
            body = await response.content.read(_LARGEST_ANSWER)
            if response.status != 200:
                words = words_of(body, response.status, response.reason or "")
                if response.status in (401, 403):
                    denial = "rejected the credentials" if credential else "allows no anonymous access"
                    raise AccessDeniedError(f"{self._registry} {denial}: {words}")
                raise RegistryError(f"the token server of {self._registry} answered {words}")
        try:
            document = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryError(f"the token server of {self._registry} sent no token") from error
        return document


def _basic(credential: Credential) -> str:
    pair = f"{credential.username}:{credential.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
