"""SPDY/3.1 frames, from the side of a client. That real kubectl understands them is tested with kubectl."""

import hashlib
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.net.spdy import (
    HEADER_DICTIONARY,
    MAX_FRAME_BYTES,
    DataReceived,
    GoingAway,
    Reply,
    SpdyConnection,
    SpdyError,
    StreamFinished,
    StreamOpened,
    StreamReset,
)


class SpdyClient:
    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=HEADER_DICTIONARY)

    def open(self, stream: int, *, flags: int = 0, count: int | None = None, **headers: str) -> bytes:
        block = struct.pack(">I", len(headers) if count is None else count)
        for text in (text for pair in headers.items() for text in pair):
            block += struct.pack(">I", len(text)) + text.encode()
        compressed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(1, struct.pack(">IIBB", stream, 0, 0, 0) + compressed, flags=flags)


def control(kind: int, payload: bytes, *, flags: int = 0, version: int = 3) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, flags << 24 | len(payload)) + payload


def test_dictionary_is_that_of_the_standard() -> None:
    assert hashlib.sha256(HEADER_DICTIONARY).hexdigest().startswith("51d27341373f923f")


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_frames_arrive_in_pieces_of_any_size(step: int) -> None:
    client = SpdyClient()
    sent = client.open(1, streamType="error", port="80") + client.open(3, flags=1, streamtype="data")
    sent += struct.pack(">II", 3, 5) + b"hello" + struct.pack(">II", 3, 1 << 24)
    sent += control(6, b"ping") + control(3, struct.pack(">II", 3, 5)) + control(4, b"") + control(7, bytes(8))
    connection = SpdyConnection()

    events = [event for at in range(0, len(sent), step) for event in connection.feed(sent[at : at + step])]

    assert events == [
        StreamOpened(1, {"streamtype": "error", "port": "80"}),
        StreamOpened(3, {"streamtype": "data"}),
        StreamFinished(3),
        DataReceived(3, b"hello"),
        StreamFinished(3),
        Reply(control(6, b"ping")),
        StreamReset(3),
        GoingAway(),
    ]


def test_data_is_sent_in_frames_and_finished_once() -> None:
    sent = SpdyConnection().data(5, bytes(70_000), finish=True)
    events = list(SpdyConnection().feed(sent))
    assert sum(len(event.data) for event in events if isinstance(event, DataReceived)) == 70_000
    assert [event for event in events if not isinstance(event, DataReceived)] == [StreamFinished(5)]


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">II", 1, MAX_FRAME_BYTES + 1),
        control(6, b"", version=2),
        control(77, b""),
        control(1, b"short"),
        control(1, bytes(10) + b"not compressed"),
        SpdyClient().open(1, count=9),
        SpdyClient().open(1, count=1000),
        SpdyClient().open(1, bomb="x" * 1_000_000),
    ],
    ids=["large", "version", "type", "short", "compression", "truncated", "count", "bomb"],
)
def test_violations_are_errors(sent: bytes) -> None:
    with pytest.raises(SpdyError):
        list(SpdyConnection().feed(sent))


@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_a_violation(data: bytes) -> None:
    with suppress(SpdyError):
        list(SpdyConnection().feed(b"\x80\x03" + data))
