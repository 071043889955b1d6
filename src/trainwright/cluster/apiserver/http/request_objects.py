"""The object in the body of a request: decoded, and compared with the path."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.bodies import Body, decode_body, strict_decoding_errors
from trainwright.cluster.apiserver.http.discovery import SUBRESOURCE_KINDS
from trainwright.cluster.apiserver.http.requests import ApiRequest
from trainwright.cluster.apiserver.http.responses import encode
from trainwright.cluster.apiserver.writes.create_update import DecodedObject, decode_object
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import Resource

_OLD_VERSIONS = {"Eviction": "policy/v1beta1"}


def read_body(request: ApiRequest) -> Body:
    return decode_body(request.body, request.content_type, kind=request.info.kind.resource.kind)


def read_options(request: ApiRequest) -> Object:
    """The body of a request to a subresource."""
    return decode_options(request.body, request.content_type, _options_kind(request), request.info.scope)


def check_options(request: ApiRequest, body: Object) -> None:
    """For a body that is not sent but patched."""
    _check_options(_options_kind(request), request.info.scope, body)


def decode_options(raw: bytes, content_type: str, expected: Resource, namespace: str) -> Object:
    """A body that is not stored: a review, or that of a subresource."""
    body = decode_body(raw, content_type, kind=expected.kind).value
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise errors.bad_request(f"the body must be a {expected.kind} object")
    _check_options(expected, namespace, body)
    return body


def _options_kind(request: ApiRequest) -> Resource:
    group, version, kind = SUBRESOURCE_KINDS[request.info.subresource]
    return Resource(group, version, "", kind)


def _check_options(expected: Resource, namespace: str, body: Object) -> None:
    """It may leave out its kind and namespace, and has no others than those of the path."""
    kind, version = body.get("kind") or expected.kind, body.get("apiVersion") or expected.api_version
    if kind != expected.kind or version not in {expected.api_version, _OLD_VERSIONS.get(kind)}:
        shown = str(version).rpartition("/")[2]
        why = f"the path takes a {expected.kind} of {expected.api_version}"
        raise errors.bad_request(f'{kind} in version "{shown}" cannot be handled as a {expected.kind}: {why}')
    _check_namespace(namespace, body)


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
    name = value_at(obj, "metadata", "name")
    if not name:
        why = "was undeterminable: name must be provided"
        raise errors.bad_request(f"the name of the object ({request.info.name} based on URL) {why}")
    if name != request.info.name:
        raise name_mismatch(name, request.info.name)


def check_options_name(request: ApiRequest, body: Object) -> None:
    """The same for a Binding and an Eviction, in the words of the real server."""
    if value_at(body, "metadata", "name") != request.info.name:
        raise errors.bad_request(f"name in URL does not match name in {_options_kind(request).kind} object")


def check_namespace(request: ApiRequest, obj: object) -> None:
    _check_namespace(request.info.scope, obj)


def _check_namespace(expected: str, obj: object) -> None:
    namespace = value_at(obj, "metadata", "namespace")
    if namespace and namespace != expected:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)


def name_mismatch(name: object, expected: str) -> errors.StatusError:
    return errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({expected})")
