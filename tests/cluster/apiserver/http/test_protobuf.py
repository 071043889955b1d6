"""Decoding of protobuf bodies; the test of kubectl sends those of all kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.http.protobuf import decode_envelope


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def envelope(kind: bytes, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, b"v1") + field(2, kind)) + field(2, raw)


def test_config_map_is_decoded() -> None:
    metadata = field(1, b"c") + field(3, b"ns") + field(11, field(1, b"l") + field(2, b"v"))
    raw = (
        field(1, metadata) + field(2, field(1, b"k") + field(2, b"text")) + field(3, field(1, b"b") + field(2, b"\xff"))
    )
    assert decode_envelope(envelope(b"ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "ns", "labels": {"l": "v"}},
        "data": {"k": "text"},
        "binaryData": {"b": "/w=="},
    }


def test_owners_are_kept() -> None:
    owner = field(1, b"Job") + field(3, b"train") + field(4, b"u1") + field(5, b"batch/v1") + b"\x30\x01"
    decoded = decode_envelope(envelope(b"ConfigMap", field(1, field(1, b"c") + field(13, owner))))
    assert decoded["metadata"]["ownerReferences"] == [
        {"kind": "Job", "name": "train", "uid": "u1", "apiVersion": "batch/v1", "controller": True}
    ]


def test_other_kinds_are_rejected_with_a_hint() -> None:
    with pytest.raises(StatusError, match=r"not of StatefulSet: .*kubectl apply -f") as failure:
        decode_envelope(envelope(b"StatefulSet", b""))
    assert failure.value.code == 415


@given(st.binary(max_size=60), st.booleans())
def test_random_bytes_are_a_bad_request(data: bytes, enveloped: bool) -> None:
    body = envelope(b"Secret", data[:100]) if enveloped else b"k8s\x00" + data
    try:
        kind = decode_envelope(body)["kind"]
    except StatusError as failure:
        kind = failure.code
    assert kind in {"Secret", 400, 415}


def test_delete_options_are_decoded() -> None:
    raw = b"\x08\x05" + field(2, field(1, b"some-uid")) + field(4, b"Background") + field(5, b"All")
    assert decode_envelope(envelope(b"DeleteOptions", raw)) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 5,
        "preconditions": {"uid": "some-uid"},
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    }


def test_number_without_an_end_is_refused() -> None:
    with pytest.raises(StatusError, match="more than 64 bits"):
        decode_envelope(b"k8s\x00" + b"\x80" * 1_000_000)
