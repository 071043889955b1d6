"""The messages of exec over WebSocket: streams, terminal size and exit status, each on its channel.

v5.channel.k8s.io and the older v4, which cannot signal the end of stdin. `exec_session` sends the messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from trainwright.kube.client.errors import error_from_status
from trainwright.objects import Object

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"

STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

END_OF_INPUT = bytes([CLOSE, STDIN])

_PIECE = 32 * 1024


@dataclass(frozen=True, slots=True)
class Output:
    """Output of the command. With a terminal all of it is stdout."""

    data: bytes
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The command has exited. A command that cannot be started is an ApiError instead."""

    exit_code: int


def input_messages(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield bytes([STDIN]) + data[start : start + _PIECE]


def resize_message(width: int, height: int) -> bytes:
    return bytes([RESIZE]) + msgspec.json.encode({"Width": width, "Height": height})


def read_message(message: bytes) -> Output | Ended | None:
    """None for an empty message: the server opens each stream with one."""
    channel, payload = message[:1], message[1:]
    if not payload:
        return None
    if channel == bytes([STATUS]):
        return _ended(payload)
    if channel in (bytes([STDOUT]), bytes([STDERR])):
        return Output(payload, is_error=channel == bytes([STDERR]))
    return None


def _ended(payload: bytes) -> Ended:
    try:
        status = msgspec.json.decode(payload, type=Object)
    except msgspec.DecodeError:
        status = {"message": payload.decode(errors="replace").strip(), "code": 500}
    if status.get("status") == "Success":
        return Ended(0)
    code = _exit_code(status)
    if code is None:
        raise error_from_status({**status, "code": status.get("code") or 500})
    return Ended(code)


def _exit_code(status: Object) -> int | None:
    if status.get("reason") != "NonZeroExitCode":
        return None
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdecimal():
            return int(cause["message"])
    return None
