"""Protobuf bodies, which `kubectl auth` and `kubectl create KIND` send without a JSON alternative.

The table below has the fields that kubectl sends; other kinds are refused with a message that names the alternative.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.objects import Object
from trainwright.objects.times import format_time

_MAGIC = b"k8s\x00"
_LONGEST_VARINT = 63
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_TABLE = """
ConfigMap: 1 metadata ObjectMeta, 2 data map of text, 3 binaryData map of base64, 4 immutable boolean
Secret: 1 metadata ObjectMeta, 2 data map of base64, 3 type text, 5 immutable boolean
Namespace: 1 metadata ObjectMeta
ServiceAccount: 1 metadata ObjectMeta
Role: 1 metadata ObjectMeta, 2 rules list of PolicyRule
RoleBinding: 1 metadata ObjectMeta, 2 subjects list of Subject, 3 roleRef RoleRef
ClusterRole: 1 metadata ObjectMeta, 2 rules list of PolicyRule, 3 aggregationRule AggregationRule
ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects list of Subject, 3 roleRef RoleRef
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SelfSubjectAccessReviewSpec
SelfSubjectRulesReview: 1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec
SelfSubjectReview: 1 metadata ObjectMeta
SubjectAccessReview: 1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec
LocalSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec
TokenReview: 1 metadata ObjectMeta, 2 spec TokenReviewSpec
TokenRequest: 1 metadata ObjectMeta, 2 spec TokenRequestSpec
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec
Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec
Job: 1 metadata ObjectMeta, 2 spec JobSpec
ResourceQuota: 1 metadata ObjectMeta, 2 spec ResourceQuotaSpec
PriorityClass: 1 metadata ObjectMeta, 2 value integer, 3 globalDefault boolean, 4 description text,
  5 preemptionPolicy text
CertificateSigningRequest: 1 metadata ObjectMeta, 2 spec CertificateSigningRequestSpec,
  3 status CertificateSigningRequestStatus
CertificateSigningRequestSpec: 1 request base64, 5 usages list of text, 7 signerName text, 8 expirationSeconds integer
CertificateSigningRequestStatus: 1 conditions list of CertificateSigningRequestCondition, 2 certificate base64
CertificateSigningRequestCondition: 1 type text, 2 reason text, 3 message text, 4 lastUpdateTime Time,
  5 lastTransitionTime Time, 6 status text
DeleteOptions: 1 gracePeriodSeconds integer, 2 preconditions Preconditions, 3 orphanDependents boolean,
  4 propagationPolicy text, 5 dryRun list of text
Preconditions: 1 uid text, 2 resourceVersion text
DeploymentSpec: 1 replicas integer, 2 selector LabelSelector, 3 template PodTemplateSpec,
  9 progressDeadlineSeconds integer
JobSpec: 1 parallelism integer, 2 completions integer, 3 activeDeadlineSeconds integer, 6 template PodTemplateSpec,
  7 backoffLimit integer, 8 ttlSecondsAfterFinished integer, 9 completionMode text, 10 suspend boolean
ServiceSpec: 1 ports list of ServicePort, 2 selector map of text, 3 clusterIP text, 4 type text,
  5 externalIPs list of text, 7 sessionAffinity text, 10 externalName text, 18 clusterIPs list of text
ServicePort: 1 name text, 2 protocol text, 3 port integer, 4 targetPort IntOrString, 5 nodePort positive integer
ResourceQuotaSpec: 1 hard map of Quantity, 2 scopes list of text
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
PodSpec: 2 containers list of Container, 3 restartPolicy text, 20 initContainers list of Container
Container: 1 name text, 2 image text, 3 command list of text, 4 args list of text, 5 workingDir text,
  6 ports list of ContainerPort, 14 imagePullPolicy text
ContainerPort: 1 name text, 2 hostPort positive integer, 3 containerPort integer, 4 protocol text
ObjectMeta: 1 name text, 2 generateName text, 3 namespace text, 5 uid text, 6 resourceVersion text,
  11 labels map of text, 12 annotations map of text, 13 ownerReferences list of OwnerReference
OwnerReference: 1 kind text, 3 name text, 4 uid text, 5 apiVersion text, 6 controller boolean,
  7 blockOwnerDeletion boolean
CronJob: 1 metadata ObjectMeta
Ingress: 1 metadata ObjectMeta
PolicyRule: 1 verbs list of text, 2 apiGroups list of text, 3 resources list of text, 4 resourceNames list of text,
  5 nonResourceURLs list of text
Subject: 1 kind text, 2 apiGroup text, 3 name text, 4 namespace text
RoleRef: 1 apiGroup text, 2 kind text, 3 name text
AggregationRule: 1 clusterRoleSelectors list of LabelSelector
LabelSelector: 1 matchLabels map of text
SelfSubjectAccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes
ResourceAttributes: 1 namespace text, 2 verb text, 3 group text, 4 version text, 5 resource text, 6 subresource text,
  7 name text
NonResourceAttributes: 1 path text, 2 verb text
SelfSubjectRulesReviewSpec: 1 namespace text
SubjectAccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes,
  3 user text, 4 groups list of text, 6 uid text
TokenReviewSpec: 1 token text, 2 audiences list of text
TokenRequestSpec: 1 audiences list of text, 3 boundObjectRef BoundObjectReference, 4 expirationSeconds integer
BoundObjectReference: 1 kind text, 2 apiVersion text, 3 name text, 4 uid text
"""
"""The messages: number, name and type of each field that kubectl sends."""


def _read_table() -> dict[str, dict[int, tuple[str, str]]]:
    """Name and type of each field of a message, by its number."""
    messages: dict[str, dict[int, tuple[str, str]]] = {}
    for row in _TABLE.replace("\n  ", " ").strip().splitlines():
        message, _, fields = row.partition(": ")
        parts = (field.split(" ", 2) for field in fields.split(", "))
        messages[message] = {int(number): (name, kind) for number, name, kind in parts}
    return messages


_MESSAGES = _read_table()
_WITH_METADATA = {name for name, fields in _MESSAGES.items() if fields.get(1) == ("metadata", "ObjectMeta")}
_KINDS = sorted(_WITH_METADATA - {"PodTemplateSpec"} | {"DeleteOptions"})


def decode_envelope(raw: bytes) -> Object:
    """The object in a `k8s\\0` envelope."""
    if not raw.startswith(_MAGIC):
        raise errors.bad_request("the body is not Kubernetes protobuf: it does not start with k8s\\0")
    try:
        envelope = dict(_fields(raw[len(_MAGIC) :]))
        names = {number: value.decode() for number, value in _fields(envelope[1])}
        kind = names.get(2, "")
        if kind not in _KINDS:
            raise errors.unsupported_media_type(
                f"this server reads protobuf of {', '.join(_KINDS)} only, not of {kind}: "
                "write a manifest (kubectl create … --dry-run=client -o yaml) and send it with kubectl apply -f"
            )
        return {"apiVersion": names.get(1, ""), "kind": kind} | _message(envelope.get(2, b""), kind)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise errors.bad_request(f"the body is not valid Kubernetes protobuf: {error}") from error


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif wire == _BYTES:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("a field is cut off")
            yield number, data[position : position + length]
            position += length
        elif wire in {_FIXED32, _FIXED64}:
            position += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {wire}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _LONGEST_VARINT:
            raise ValueError("a number of more than 64 bits")


def _message(data: bytes, name: str) -> Object:
    """Empty text is Go's way to leave a field out, except in lists, where `""` is the core API group."""
    message: Object = {}
    known = _MESSAGES[name]
    for number, value in _fields(data):
        field, kind = known.get(number, ("", ""))
        if kind.startswith("list of "):
            message.setdefault(field, []).append(_value(value, kind.removeprefix("list of ")))
        elif kind.startswith("map of "):
            entry = dict(_fields(value))
            content = _value(entry.get(2, b""), kind.removeprefix("map of "))
            message.setdefault(field, {})[entry.get(1, b"").decode()] = content
        elif kind == "positive integer" and not value:
            continue  # Go writes the zero of a field that is left out in JSON
        elif kind and value != b"":
            message[field] = _value(value, kind)
    return message


def _value(value: Any, kind: str) -> Any:
    match kind:
        case "text":
            return value.decode()
        case "base64":
            return base64.b64encode(value).decode()
        case "boolean":
            return bool(value)
        case "Quantity":
            return dict(_fields(value)).get(1, b"0").decode()
        case "Time":
            seconds = _value(dict(_fields(value)).get(1, 0), "integer")
            return format_time(datetime.fromtimestamp(seconds, UTC)) if seconds > 0 else None
        case "IntOrString":
            content = dict(_fields(value))
            return content.get(3, b"").decode() if content.get(1) else content.get(2, 0)
        case "integer" | "positive integer":
            return value - (1 << 64) if value >> 63 else value
    return _message(value, kind)
