"""Container output as log lines, and back."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.container_logs import LogDecoder
from trainwright.cluster.node.supervisor.cri_log import (
    MAX_LINE_BYTES,
    MAX_ROTATED_FILES,
    LineFormatter,
    LogFile,
    LogPipe,
    remove_log,
    rotated_names,
)

STAMP = "2026-11-15T04:05:06.123456789Z"


def test_lines_are_stamped_and_named() -> None:
    lines = LineFormatter("stdout")
    assert lines.feed(b"one\ntw", STAMP) == f"{STAMP} stdout F one\n".encode()
    assert lines.feed(b"o\n\n", STAMP) == f"{STAMP} stdout F two\n{STAMP} stdout F \n".encode()
    assert lines.feed(b"rest", STAMP) == b""
    assert lines.finish(STAMP) == f"{STAMP} stdout P rest\n".encode()
    assert lines.finish(STAMP) == b""


def test_a_long_line_is_written_as_partial_lines() -> None:
    lines = LineFormatter("stderr")
    written = lines.feed(b"x" * (MAX_LINE_BYTES + 5), STAMP) + lines.feed(b"y\n", STAMP)
    first, second = written.splitlines()
    assert first == f"{STAMP} stderr P ".encode() + b"x" * MAX_LINE_BYTES
    assert second == f"{STAMP} stderr F xxxxxy".encode()


def test_a_full_disk_drops_log_lines_and_does_not_block_the_program(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    log = LogFile("/dev/full")
    pipe = LogPipe(reader, log, "stdout")
    os.write(writer, b"one\n")
    assert pipe.copy(STAMP)
    room = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(room, log.descriptor)
    for text in (b"two\n", b"three\n"):
        os.write(writer, text)
        assert pipe.copy(STAMP)
    os.close(writer)
    pipe.close(STAMP)
    log.close()
    os.close(room)
    missing = len(f"{STAMP} stdout F one\n")
    assert (tmp_path / "log").read_text().splitlines() == [
        f"{STAMP} stdout F [{missing} bytes of the log are missing here: the disk was full]",
        f"{STAMP} stdout F two",
        f"{STAMP} stdout F three",
    ]


@given(writes=st.lists(st.lists(st.binary(max_size=30), max_size=6), max_size=20), limit=st.integers(1, 100))
def test_a_log_keeps_its_end_in_files_of_bounded_size(writes: list[list[bytes]], limit: int) -> None:
    texts = [[text.replace(b"\n", b"") + b"\n" for text in texts] for texts in writes]
    longest = max((len(text) for lines in texts for text in lines), default=0)
    with TemporaryDirectory() as directory:
        path = f"{directory}/0.log"
        log = LogFile(path, limit=limit)
        for lines in texts:
            assert log.write(b"".join(lines)) == sum(map(len, lines))
        log.close()
        found = {name: Path(name).read_bytes() for name in [path, *rotated_names(path)] if Path(name).exists()}
        assert {str(name) for name in Path(directory).iterdir()} == set(found)
        remove_log(path)
        assert not list(Path(directory).iterdir())
    kept = b"".join(reversed(found.values()))
    everything = b"".join(text for lines in texts for text in lines)
    assert everything.endswith(kept)
    assert all(len(part) < limit + longest and part[-1:] in (b"", b"\n") for part in found.values() if part)
    assert kept == everything or len(found) == MAX_ROTATED_FILES + 1
    assert all(limit <= len(part) for name, part in found.items() if name != path)


def test_a_reopened_log_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    for text in (b"one\n", b"two\n", b"three\n"):
        log = LogFile(str(path), limit=8)
        assert log.write(text) == len(text)
        log.close()
    assert (path.read_bytes(), (tmp_path / "0.log.1").read_bytes()) == (b"three\n", b"one\ntwo\n")


def test_lines_that_fit_on_the_disk_are_not_reported_as_missing(tmp_path: Path) -> None:
    """The first file takes a line; for the second there is no room."""
    path = tmp_path / "0.log"
    (tmp_path / "0.log.new").symlink_to("/dev/full")
    log = LogFile(str(path), limit=1)
    assert log.write(b"one\ntwo\nthree\n") == len(b"one\n")
    log.close()
    assert (tmp_path / "0.log.1").read_bytes() == b"one\n"


BYTES = st.binary(max_size=40) | st.sampled_from([b"\n", b"x" * MAX_LINE_BYTES, b"\n\n", b"P F stdout \n"])


@given(chunks=st.lists(BYTES, max_size=12), cut=st.integers(1, 50))
def test_the_output_of_a_container_is_read_back_byte_by_byte(chunks: list[bytes], cut: int) -> None:
    lines = LineFormatter("stdout")
    log = b"".join(lines.feed(chunk, STAMP) for chunk in chunks) + lines.finish(STAMP)
    decoder = LogDecoder(timestamps=False, since=None)
    read = b"".join(decoder.feed(log[start : start + cut]) for start in range(0, len(log), cut))
    assert read == b"".join(chunks)
