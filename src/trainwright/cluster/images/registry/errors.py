"""Errors of registries. Each says in one line what the registry answered, with its own words."""

from typing import Any

import msgspec

_WORDS = {
    401: "unauthorized: authentication required",
    403: "denied: requested access to the resource is denied",
}
"""What registries say, for responses without a body."""


class RegistryError(Exception):
    """The registry did not do what was asked."""


class UnreachableRegistryError(RegistryError):
    """No connection, or no answer in time."""


class CutConnectionError(UnreachableRegistryError):
    """A connection that existed was cut or fell silent: another attempt may succeed."""


class AccessDeniedError(RegistryError):
    """The registry wants other credentials, or does not allow this to any user."""


class NotFoundError(RegistryError):
    """The registry does not have it."""


class TooManyRequestsError(RegistryError):
    """The registry limits the number of requests."""


def words_of(body: bytes, status: int, reason: str) -> str:
    """The registry's own words, as Docker prints them: `manifest unknown: manifest unknown to registry`."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    errors = document.get("errors") if isinstance(document, dict) else None
    texts = [_error_text(error) for error in (errors if isinstance(errors, list) else []) if isinstance(error, dict)]
    if isinstance(document, dict) and not texts:
        # What token servers answer.
        names = ("details", "message", "error_description", "error")
        texts = [str(document[name]) for name in names if document.get(name)]
    said = ", ".join(dict.fromkeys(text for text in texts if text))
    text = said or _WORDS.get(status) or f"{status} {reason}".strip()
    return " ".join(text.split())[:500]


def _error_text(error: dict[str, Any]) -> str:
    code = str(error.get("code") or "").lower().replace("_", " ")
    message = str(error.get("message") or "")
    return ": ".join(part for part in (code, message) if part)
