"""Errors of the API server with HTTP code, reason and the real kube-apiserver's message.

A `StatusError` becomes a response with a metav1.Status.
"""

from collections.abc import Iterable

from trainwright.objects import Object, field_errors
from trainwright.objects.field_errors import FieldError
from trainwright.objects.resources import Resource


class StatusError(Exception):
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
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


def not_found(resource: Resource, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{resource.qualified_plural} "{name}" not found', _details(resource, name))


def already_exists(resource: Resource, name: str) -> StatusError:
    message = f'{resource.qualified_plural} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {resource.qualified_plural} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def modified(resource: Resource, name: str) -> StatusError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def invalid(resource: Resource, name: str, errors: Iterable[FieldError]) -> StatusError:
    """422 with one cause per field error."""
    found = list(dict.fromkeys(errors))
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    text = str(found[0]) if len(found) == 1 else "[" + ", ".join(map(str, found)) + "]"
    details = {"name": name, "group": resource.group, "kind": resource.kind, "causes": [e.cause() for e in found]}
    message = f'{kind} "{name}" is invalid: {text}'
    return StatusError(422, "Invalid", message, {key: value for key, value in details.items() if value})


def invalid_patch(patch: str, why: str) -> StatusError:
    """422 for a patch that cannot be applied; the real server's message has neither kind nor name."""
    return invalid(Resource("", "", "", ""), "", [field_errors.invalid("patch", patch, why)])


def invalid_options(kind: str, error: FieldError) -> StatusError:
    """422 for a query parameter or a field of `CreateOptions`, `DeleteOptions`, `ListOptions`, …"""
    return invalid(Resource("meta.k8s.io", "v1", "", kind), "", [error])


def forbidden(resource: Resource, name: str, why: str, causes: list[Object] | None = None) -> StatusError:
    details = _details(resource, name) | ({"causes": causes} if causes else {})
    subject = " ".join(filter(None, [resource.qualified_plural, f'"{name}"' if name else ""]))
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}" if subject else f"forbidden: {why}", details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def undecodable(resource: Resource, why: str) -> StatusError:
    """400 for a body that is not an object of the kind that the path names."""
    kind = resource.kind
    return bad_request(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {why}')


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def not_served() -> StatusError:
    """404 for a resource that a served group version does not have."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(message: str) -> StatusError:
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def too_many_requests(message: str) -> StatusError:
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": 1})


def internal(message: str) -> StatusError:
    causes = [{"message": message}]
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {"causes": causes})


def shutting_down() -> StatusError:
    return StatusError(503, "ServiceUnavailable", "The apiserver is shutting down, please try again later.")


def _details(resource: Resource, name: str) -> Object:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}
