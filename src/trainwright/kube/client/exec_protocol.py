"""The messages of exec over WebSocket: streams, terminal size and exit status, each on its channel.

v5.channel.k8s.io and the older v4, which cannot signal the end of stdin. `exec_session` is the client that sends and
reads them, the embedded API server the other side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from trainwright.kube.client.errors import error_from_status
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal

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


@dataclass(frozen=True, slots=True)
class Input:
    """Input for the command."""

    data: bytes


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The client has closed stdin."""


@dataclass(frozen=True, slots=True)
class Resize:
    """The size of the client's terminal."""

    width: int
    height: int


# Messages of a client


def input_messages(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _PIECE):
        yield bytes([STDIN]) + data[start : start + _PIECE]


def resize_message(width: int, height: int) -> bytes:
    return bytes([RESIZE]) + msgspec.json.encode({"Width": width, "Height": height})


def read_client_message(message: bytes) -> Input | EndOfInput | Resize | None:
    """None for a message without a meaning: an empty one, or one on an unknown channel."""
    channel, payload = message[:1], message[1:]
    if channel == bytes([STDIN]) and payload:
        return Input(payload)
    if message == END_OF_INPUT:
        return EndOfInput()
    if channel == bytes([RESIZE]):
        try:
            size = msgspec.json.decode(payload, type=_TerminalSize)
        except msgspec.MsgspecError:
            return None
        return Resize(size.width, size.height)
    return None


class _TerminalSize(msgspec.Struct, rename="pascal"):
    width: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    height: Annotated[int, msgspec.Meta(ge=0, le=65535)]


# Messages of a server


def output_message(output: Output) -> bytes:
    return bytes([STDERR if output.is_error else STDOUT]) + output.data


def exit_message(exit_code: int, *, protocol: str, command: Sequence[str]) -> bytes:
    """The status of a command that has exited, in the real server's words for this protocol."""
    if exit_code == 0:
        return _status_message({"metadata": {}, "status": "Success"})
    reason = f"command terminated with exit code {exit_code}"
    if protocol == V4:
        reason = f"error executing command [{' '.join(command)}], exit code {exit_code}"
    return _status_message(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: {reason}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(exit_code)}]},
        }
    )


def error_message(message: str) -> bytes:
    """The status of a session that failed, for example of a command that cannot be started."""
    return _status_message(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"Internal error occurred: {message}",
            "reason": "InternalError",
            "details": {"causes": [{"message": message}]},
            "code": 500,
        }
    )


def _status_message(status: Object) -> bytes:
    return bytes([STATUS]) + msgspec.json.encode(status)


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
        if cause.get("reason") == "ExitCode" and (code := parse_decimal(str(cause.get("message")))) is not None:
            return code
    return None
