"""One call of grpc.health.v1.Health/Check over a plain connection: as much of HTTP/2 as that needs.

Standard library only.
"""

from __future__ import annotations

import socket
import struct

TYPE_CHECKING = False  # importing typing takes four milliseconds
if TYPE_CHECKING:
    from typing import BinaryIO

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_PADDED = 8
_STREAM = 1
_STATUS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


def check(connection: socket.socket, authority: str, service: str) -> tuple[int, str]:
    """Exit status (0 for a service that serves, else 1) and text. The connection's timeout applies to every read."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": authority,
        "content-type": "application/grpc",
        "user-agent": "kube-probe/1.35",
        "te": "trailers",
    }
    connection.sendall(
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(_literal(*header) for header in headers.items()))
        + _frame(_DATA, _END_STREAM, _STREAM, b"\0" + struct.pack(">I", len(message)) + message)
    )
    answer = _read_answer(connection)
    if not answer:
        return 1, "error: health rpc probe failed: the server sent no health status"
    status = _STATUS.get(_status(answer[5:]), "UNKNOWN")
    return (0, "") if status == "SERVING" else (1, f'service unhealthy (responded with "{status}")')


def _read_answer(connection: socket.socket) -> bytes:
    """The data of the stream; empty if it ended without."""
    with connection.makefile("rb") as stream:
        return _read_frames(connection, stream)


def _read_frames(connection: socket.socket, stream: BinaryIO) -> bytes:
    found = b""
    while len(head := stream.read(9)) == 9:
        size = int.from_bytes(head[:3], "big")
        kind, flags, number = head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF
        payload = stream.read(size)
        if kind == _SETTINGS and not flags & _ACK:
            connection.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            connection.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind in {_RESET, _GOAWAY}:
            break
        elif number == _STREAM:
            if kind == _DATA:
                found += payload[1 : size - payload[0]] if flags & _PADDED else payload
            if flags & _END_STREAM:
                break
    return found


def _status(message: bytes) -> int:
    """Field 1 of HealthCheckResponse; 0 is omitted on the wire."""
    return message[1] if len(message) >= 2 and message[0] == 8 else 0


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header without compression."""
    return b"\0" + b"".join(_integer(len(text)) + text.encode() for text in (name, value))


def _integer(number: int) -> bytes:
    """With a prefix of seven bits."""
    return bytes([number]) if number < 127 else b"\x7f" + _varint(number - 127)


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])
