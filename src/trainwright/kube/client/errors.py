# ruff: noqa: N818 (the names are those of the API's reasons)
"""Errors of requests to an API server.

`ApiError` is an error response of the server; `Unreachable` means that there was no complete response.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from trainwright.objects import Object


class Unreachable(Exception):
    """There is no connection to the server, or it broke. The message names the server."""


class Silent(Unreachable):
    """The client closed a stream that had been silent for too long."""


class Untrusted(Unreachable):
    """The server's certificate is not trusted. A retry cannot help."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of an error; `field` is the path of the invalid field, if there is one."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """An error response. `status` is its metav1.Status; if the body is not one, it is built from the text."""

    def __init__(self, status: Object, *, retry_after: float | None = None) -> None:
        self.status = status
        self.code = int(status.get("code") or 0)
        self.reason = str(status.get("reason") or "")
        self.message = str(status.get("message") or self.reason or f"HTTP {self.code}")
        self.retry_after = retry_after
        super().__init__(self.message)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The invalid fields of the object, or the fields that another manager owns."""
        found = (self.status.get("details") or {}).get("causes") or ()
        return tuple(Cause(*(str(cause.get(key) or "") for key in ("reason", "message", "field"))) for cause in found)

    @property
    def resource(self) -> str:
        """The plural of the resource that the error is about; empty if the server does not say."""
        return str((self.status.get("details") or {}).get("kind") or "")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status,), {"retry_after": self.retry_after}


class BadRequest(ApiError):
    """400"""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: RBAC does not allow it."""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409: the object has changed since it was read."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: an object of that name exists."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object is invalid."""


class TooManyRequests(ApiError):
    """429"""


class ServerError(ApiError):
    """5xx"""


class Unavailable(ServerError):
    """503"""


_BY_CODE: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
    503: Unavailable,
}


def is_namespace_terminating(error: Exception) -> bool:
    """True if an object could not be created because its namespace is being deleted."""
    return isinstance(error, Forbidden) and any(cause.reason == "NamespaceTerminating" for cause in error.causes)


def is_undecodable(error: Exception) -> bool:
    """True if the body is no object of the resource's kind. The server gives neither a reason nor a cause for it: its
    text is the only mark."""
    return isinstance(error, BadRequest) and " cannot be handled as a " in error.message


def error_from_status(status: Object, *, retry_after: float | None = None) -> ApiError:
    """The exception for a metav1.Status."""
    code = int(status.get("code") or 0)
    if status.get("reason") == "AlreadyExists":
        kind: type[ApiError] = AlreadyExists
    elif code >= 500:
        kind = _BY_CODE.get(code, ServerError)
    else:
        kind = _BY_CODE.get(code, ApiError)
    return kind(status, retry_after=retry_after)


def error_from_response(code: int, body: bytes, *, retry_after: float | None = None) -> ApiError:
    """The exception for an HTTP response, whether or not its body is a metav1.Status."""
    try:
        status = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body.decode(errors="replace").strip()
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text or f"HTTP {code}"}
    return error_from_status({**status, "code": status.get("code") or code}, retry_after=retry_after)
