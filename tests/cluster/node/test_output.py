"""Container output as log lines, and back."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.logs import Renderer
from trainwright.cluster.node.output import LONGEST_PIECE, Lines

STAMP = "2026-11-15T04:05:06.123456789Z"


def test_lines_are_stamped_and_named() -> None:
    lines = Lines("stdout")
    assert lines.feed(b"one\ntw", STAMP) == f"{STAMP} stdout F one\n".encode()
    assert lines.feed(b"o\n\n", STAMP) == f"{STAMP} stdout F two\n{STAMP} stdout F \n".encode()
    assert lines.feed(b"rest", STAMP) == b""
    assert lines.finish(STAMP) == f"{STAMP} stdout P rest\n".encode()
    assert lines.finish(STAMP) == b""


def test_a_long_line_is_cut_into_pieces() -> None:
    lines = Lines("stderr")
    written = lines.feed(b"x" * (LONGEST_PIECE + 5), STAMP) + lines.feed(b"y\n", STAMP)
    first, second = written.splitlines()
    assert first == f"{STAMP} stderr P ".encode() + b"x" * LONGEST_PIECE
    assert second == f"{STAMP} stderr F xxxxxy".encode()


BYTES = st.binary(max_size=40) | st.sampled_from([b"\n", b"x" * LONGEST_PIECE, b"\n\n", b"P F stdout \n"])


@given(chunks=st.lists(BYTES, max_size=12), cut=st.integers(1, 50))
def test_what_a_container_wrote_is_read_back_byte_by_byte(chunks: list[bytes], cut: int) -> None:
    lines = Lines("stdout")
    log = b"".join(lines.feed(chunk, STAMP) for chunk in chunks) + lines.finish(STAMP)
    renderer = Renderer(timestamps=False, since=None)
    read = b"".join(renderer.feed(log[start : start + cut]) for start in range(0, len(log), cut))
    assert read == b"".join(chunks)
