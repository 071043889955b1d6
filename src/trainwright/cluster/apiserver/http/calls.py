"""One request to the object API and its answer, as values between the HTTP edge and the verbs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.requests import Form, Target, read_form
from trainwright.cluster.apiserver.http.tables import encode
from trainwright.cluster.apiserver.writes.managed_fields import Author
from trainwright.objects import Object, field_errors
from trainwright.objects.field_errors import FieldError

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: bytes
    content_type: str = JSON
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks of a target."""

    target: Target
    method: str
    query: Mapping[str, str]
    now: datetime
    accept: str = JSON
    content_type: str = JSON
    user_agent: str = ""
    body: bytes = b""
    warnings: list[str] = field(default_factory=list)
    """Filled while the call is answered; each becomes a Warning header."""

    @property
    def form(self) -> Form:
        return read_form(self.accept, self.query)

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun", "")
        if value not in {"", "All"}:
            raise self._invalid_option(field_errors.not_supported("dryRun", [value], ["All"]))
        return value == "All"

    @property
    def field_validation(self) -> str:
        value = self.query.get("fieldValidation") or "Warn"
        if value not in {"Strict", "Warn", "Ignore"}:
            supported = ["", "Ignore", "Strict", "Warn"]
            raise self._invalid_option(field_errors.not_supported("fieldValidation", value, supported))
        return value

    @property
    def author(self) -> Author:
        """The field manager that the client names, else the program that it is."""
        manager = self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"
        return Author(manager, self.now, self.target.subresource)

    def _invalid_option(self, error: FieldError) -> errors.ApiFailure:
        """Query parameters are the options of their verb."""
        kinds = {"POST": "CreateOptions", "PUT": "UpdateOptions", "DELETE": "DeleteOptions"}
        return errors.invalid_options(kinds.get(self.method, "PatchOptions"), error)


def status_answer(code: int, details: Object, status: str = "Success") -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status}
    return Answer(code, encode(body | ({"details": details} if details else {})))
