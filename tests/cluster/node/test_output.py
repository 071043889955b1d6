"""Container output as log lines, and back."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.logs import Renderer
from trainwright.cluster.node.output import LONGEST_PIECE, Lines, Pipe

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


def test_a_full_disk_costs_the_log_some_lines_and_the_program_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    log = os.open("/dev/full", os.O_WRONLY)
    pipe = Pipe(reader, log, "stdout")
    os.write(writer, b"one\n")
    assert pipe.pump(STAMP)
    room = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(room, log)
    for text in (b"two\n", b"three\n"):
        os.write(writer, text)
        assert pipe.pump(STAMP)
    os.close(writer)
    pipe.close(STAMP)
    for descriptor in (log, room):
        os.close(descriptor)
    missing = len(f"{STAMP} stdout F one\n")
    assert (tmp_path / "log").read_text().splitlines() == [
        f"{STAMP} stdout F [{missing} bytes of the log are missing here: the disk was full]",
        f"{STAMP} stdout F two",
        f"{STAMP} stdout F three",
    ]


BYTES = st.binary(max_size=40) | st.sampled_from([b"\n", b"x" * LONGEST_PIECE, b"\n\n", b"P F stdout \n"])


@given(chunks=st.lists(BYTES, max_size=12), cut=st.integers(1, 50))
def test_what_a_container_wrote_is_read_back_byte_by_byte(chunks: list[bytes], cut: int) -> None:
    lines = Lines("stdout")
    log = b"".join(lines.feed(chunk, STAMP) for chunk in chunks) + lines.finish(STAMP)
    renderer = Renderer(timestamps=False, since=None)
    read = b"".join(renderer.feed(log[start : start + cut]) for start in range(0, len(log), cut))
    assert read == b"".join(chunks)
