"""The object in the body of a request: decoded, and compared with the path."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.bodies import Body, decode_body, strict_decoding_errors
from trainwright.cluster.apiserver.http.requests import ApiRequest
from trainwright.cluster.apiserver.http.responses import encode
from trainwright.cluster.apiserver.writes.create_update import DecodedObject, decode_object
from trainwright.objects import Object
from trainwright.objects.paths import value_at


def read_body(request: ApiRequest) -> Body:
    return decode_body(request.body, request.content_type, kind=request.info.kind.resource.kind)


def read_options(request: ApiRequest, kind: str) -> Object:
    """The body of a request to a subresource."""
    body = decode_body(request.body, request.content_type, kind=kind).value
    if not isinstance(body, dict):
        raise errors.bad_request(f"the body must be a {kind} object")
    return body


def decode(request: ApiRequest, body: Body, *, patched: bool = False) -> DecodedObject:
    """Decodes the body; unknown and repeated fields are refused or warned about, as `fieldValidation` demands."""
    kind, validation = request.info.kind, request.field_validation
    sent = encode(body.value).decode() if patched and validation == "Strict" else ""
    decoded = decode_object(kind, body.value)
    if validation == "Ignore":
        return decoded
    found = strict_decoding_errors(body, decoded.findings.unknown)
    if found and validation == "Strict":
        why = "strict decoding error: " + ", ".join(found)
        raise errors.invalid_patch(sent, why) if patched else errors.undecodable(kind.resource, why)
    request.warnings.extend(found)
    return decoded


def check_name(request: ApiRequest, obj: object) -> None:
    """The object may leave its name out."""
    name = value_at(obj, "metadata", "name")
    if name is not None and name != request.info.name:
        raise name_mismatch(name, request.info.name)


def check_namespace(request: ApiRequest, obj: object) -> None:
    namespace = value_at(obj, "metadata", "namespace")
    if namespace and namespace != request.info.scope:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)


def name_mismatch(name: object, expected: str) -> errors.StatusError:
    return errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({expected})")
