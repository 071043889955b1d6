"""The messages of exec, as the real server sends and expects them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.client.errors import ApiError, ServerError
from trainwright.kube.client.exec_protocol import Ended, Output, input_messages, read_message, resize_message

FAILED = (
    b'{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated '
    b'with exit code 2","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"2"}]}}'
)


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        (b"\x01hello\n", Output(b"hello\n")),
        (b"\x02oh\n", Output(b"oh\n", is_error=True)),
        (b"\x01", None),
        (b"\x02", None),
        (b"\x03", None),
        (b"", None),
        (b"\x07what", None),
        (b'\x03{"metadata":{},"status":"Success"}', Ended(0)),
        (b"\x03" + FAILED, Ended(2)),
    ],
)
def test_messages_are_output_or_exit(message: bytes, meaning: Output | Ended | None) -> None:
    assert read_message(message) == meaning


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (
            b'{"status":"Failure","message":"container not found (\\"x\\")","reason":"InternalError"}',
            "container not found",
        ),
        (b'{"status":"Failure","reason":"NonZeroExitCode","message":"no code"}', "no code"),
        (
            b'{"status":"Failure","reason":"NonZeroExitCode","message":"odd","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}',
            "odd",
        ),
        (b"error executing command\n", "error executing command$"),
        (b"\xff", "�"),
    ],
)
def test_command_that_could_not_run_is_raised(payload: bytes, text: str) -> None:
    with pytest.raises(ServerError, match=text):
        read_message(b"\x03" + payload)


@given(st.binary(max_size=300))
def test_any_message_is_read_or_raises_an_api_error(message: bytes) -> None:
    try:
        meaning = read_message(message)
    except ApiError:
        assert message[:1] == b"\x03"
    else:
        assert meaning is None or isinstance(meaning, Output | Ended)


@given(st.binary(max_size=100_000))
def test_input_arrives_whole_and_in_pieces_that_fit(data: bytes) -> None:
    messages = list(input_messages(data))
    assert all(message[:1] == b"\x00" and 1 < len(message) <= 32 * 1024 + 1 for message in messages)
    assert b"".join(message[1:] for message in messages) == data


def test_a_terminal_has_a_size() -> None:
    assert resize_message(100, 33) == b'\x04{"Width":100,"Height":33}'
