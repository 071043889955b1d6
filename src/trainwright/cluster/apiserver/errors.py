"""Every refusal of the API server as a value: HTTP code, reason and message in the words of the real kube-apiserver.

Whatever goes wrong below the HTTP edge is raised as an `ApiFailure` and leaves the server as a metav1.Status body.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainwright.objects import Object
from trainwright.objects.resources import Resource


class ApiFailure(Exception):  # noqa: N818 - an answer to the client, not a fault of the server
    """A request that ends with a Status of `status: Failure`."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.continue_token = ""

    def status(self) -> Object:
        body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_token} if self.continue_token else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with one field, as k8s.io/apimachinery's field.Error words it."""

    reason: str
    field: str
    body: str

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> Object:
        return {"reason": self.reason, "message": self.body, "field": self.field}


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, f"Required value: {detail}" if detail else "Required value")


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def invalid_type(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def not_supported(field: str, value: Any, supported: Iterable[Any]) -> FieldError:
    allowed = ", ".join(shown(one) for one in supported)
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {shown(value)}: supported values: {allowed}"
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate_value(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")


def shown(value: Any) -> str:
    """A value as Go prints it in field errors."""
    if value is None:
        return "null"
    if isinstance(value, (str, bool)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return str(value)


def not_found(resource: Resource, name: str) -> ApiFailure:
    return ApiFailure(404, "NotFound", f'{resource.qualified_plural} "{name}" not found', _details(resource, name))


def already_exists(resource: Resource, name: str) -> ApiFailure:
    message = f'{resource.qualified_plural} "{name}" already exists'
    return ApiFailure(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> ApiFailure:
    message = f'Operation cannot be fulfilled on {resource.qualified_plural} "{name}": {why}'
    return ApiFailure(409, "Conflict", message, _details(resource, name))


def modified(resource: Resource, name: str) -> ApiFailure:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, errors: Iterable[FieldError]) -> ApiFailure:
    """422 with one cause per field error."""
    found = list(dict.fromkeys(errors))
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    text = str(found[0]) if len(found) == 1 else "[" + ", ".join(map(str, found)) + "]"
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": [e.cause() for e in found]}
    message = f'{kind} "{name}" is invalid: {text}'
    return ApiFailure(422, "Invalid", message, {key: value for key, value in details.items() if value})


def invalid_patch(patch: str, why: str) -> ApiFailure:
    """422 for a patch that cannot be applied; the real server names neither kind nor object here."""
    error = invalid_value("patch", patch, why)
    return ApiFailure(422, "Invalid", f' "" is invalid: {error}', {"causes": [error.cause()]})


def forbidden(resource: Resource, name: str, why: str, causes: list[Object] | None = None) -> ApiFailure:
    details = _details(resource, name) | ({"causes": causes} if causes else {})
    return ApiFailure(403, "Forbidden", f'{resource.qualified_plural} "{name}" is forbidden: {why}', details)


def bad_request(message: str) -> ApiFailure:
    return ApiFailure(400, "BadRequest", message)


def undecodable(resource: Resource, why: str) -> ApiFailure:
    """400 for a body that is not an object of the kind that the path names."""
    kind = resource.kind
    return bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {why}')


def unauthorized() -> ApiFailure:
    return ApiFailure(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> ApiFailure:
    return ApiFailure(410, "Expired", message)


def not_served() -> ApiFailure:
    """404 for a resource that a served group version does not have."""
    return ApiFailure(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiFailure:
    message = "the server does not allow this method on the requested resource"
    return ApiFailure(405, "MethodNotAllowed", message, {})


def unsupported_media_type(message: str) -> ApiFailure:
    return ApiFailure(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiFailure:
    return ApiFailure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def not_implemented(message: str) -> ApiFailure:
    return ApiFailure(501, "NotImplemented", message)


def internal(message: str) -> ApiFailure:
    causes = [{"message": message}]
    return ApiFailure(500, "InternalError", f"Internal error occurred: {message}", {"causes": causes})


def _details(resource: Resource, name: str) -> Object:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
