# ruff: noqa: N818 (the names are those of the API's reasons)
"""What can go wrong when talking to an API server, as exceptions that callers can tell apart.

`ApiError` is an answer of the server that refuses; `Unreachable` means that there was no answer to read.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from trainwright.objects import Object


class Unreachable(Exception):
    """No answer: the server could not be connected to, or the connection broke. The message names the server."""


class Silent(Unreachable):
    """A stream is open, but nothing has come for longer than anything should take; it was closed."""


class Untrusted(Unreachable):
    """Somebody answers, but its certificate does not prove that it is the server: waiting will not change that."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One of the reasons for a refusal: `field` is the path that it is about, where there is one."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """The server refused. `status` is the metav1.Status of its answer, made up from the text if it sent none."""

    def __init__(self, status: Object, *, retry_after: float | None = None) -> None:
        self.status = status
        self.code = int(status.get("code") or 0)
        self.reason = str(status.get("reason") or "")
        self.message = str(status.get("message") or self.reason or f"HTTP {self.code}")
        self.retry_after = retry_after
        super().__init__(self.message)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The single fields that an object breaks a rule with, or that another manager owns."""
        found = (self.status.get("details") or {}).get("causes") or ()
        return tuple(Cause(*(str(one.get(key) or "") for key in ("reason", "message", "field"))) for one in found)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status,), {"retry_after": self.retry_after}


class BadRequest(ApiError):
    """400"""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: the credentials are good, the permission is missing."""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409: the object has changed since it was read."""


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: the name is taken."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks a rule of its kind."""


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


def error_from_status(status: Object, *, retry_after: float | None = None) -> ApiError:
    """The exception that fits a metav1.Status."""
    code = int(status.get("code") or 0)
    if status.get("reason") == "AlreadyExists":
        kind: type[ApiError] = AlreadyExists
    elif code >= 500:
        kind = _BY_CODE.get(code, ServerError)
    else:
        kind = _BY_CODE.get(code, ApiError)
    return kind(status, retry_after=retry_after)


def error_from_answer(code: int, body: bytes, *, retry_after: float | None = None) -> ApiError:
    """The exception that fits an HTTP answer, whether or not its body is a metav1.Status."""
    try:
        status = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = body.decode(errors="replace").strip()
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text or f"HTTP {code}"}
    return error_from_status({**status, "code": status.get("code") or code}, retry_after=retry_after)
