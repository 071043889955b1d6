"""Container output as log lines, and back."""

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.records.container_logs import LogDecoder
from trainwright.cluster.node.supervisor.containers.container_status import MAX_RUNS
from trainwright.cluster.node.supervisor.containers.cri_log import (
    FLUSH_SECONDS,
    MAX_LINE_BYTES,
    MAX_ROTATED_FILES,
    MAX_RUNS_BYTES,
    LineFormatter,
    LogFile,
    LogPipe,
    dropped_bytes,
    remove_old_logs,
    rotated_names,
)
from trainwright.cluster.node.supervisor.containers.pacing import OutputPacer

STAMP = "2026-11-15T04:05:06.123456789Z"


def test_lines_are_stamped_and_named() -> None:
    lines = LineFormatter("stdout")
    assert lines.feed(b"one\ntw", STAMP) == f"{STAMP} stdout F one\n".encode()
    assert lines.feed(b"o\n\n", STAMP) == f"{STAMP} stdout F two\n{STAMP} stdout F \n".encode()
    assert lines.feed(b"rest", STAMP) == b""
    assert lines.flush(STAMP) == f"{STAMP} stdout P rest\n".encode()
    assert lines.flush(STAMP) == b""


def test_a_long_line_is_written_as_partial_lines() -> None:
    lines = LineFormatter("stderr")
    written = lines.feed(b"x" * (MAX_LINE_BYTES + 5), STAMP) + lines.feed(b"y\n", STAMP)
    first, second = written.splitlines()
    assert first == f"{STAMP} stderr P ".encode() + b"x" * MAX_LINE_BYTES
    assert second == f"{STAMP} stderr F xxxxxy".encode()


def test_a_full_disk_drops_log_lines_and_does_not_block_the_program(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    log = LogFile("/dev/full")
    pipe = LogPipe(reader, log, "stdout", OutputPacer())
    os.write(writer, b"one\n")
    assert pipe.copy(STAMP, now=0.0)
    room = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(room, log.descriptor)
    for text in (b"two\n", b"three\n"):
        os.write(writer, text)
        assert pipe.copy(STAMP, now=0.0)
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
        dropped = dropped_bytes(path)
        assert {str(name) for name in Path(directory).iterdir()} - {f"{path}.dropped"} == set(found)
    kept = b"".join(reversed(found.values()))
    everything = b"".join(text for lines in texts for text in lines)
    assert everything.endswith(kept)
    assert dropped == len(everything) - len(kept)
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


def test_an_incomplete_line_is_written_after_a_moment(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    log = LogFile(str(tmp_path / "0.log"))
    pipe = LogPipe(reader, log, "stderr", OutputPacer())

    for update, now in ((b"\r 1%", 7.0), (b"\r 2%", 7.1)):
        os.write(writer, update)
        pipe.copy(STAMP, now)
    assert (tmp_path / "0.log").read_bytes() == b""
    assert pipe.flush_at == 7.0 + FLUSH_SECONDS
    pipe.flush(STAMP)
    assert pipe.flush_at is None
    os.write(writer, b"\r100%\n")
    pipe.copy(STAMP, 8.0)

    assert pipe.flush_at is None
    head = f"{STAMP} stderr".encode()
    assert (tmp_path / "0.log").read_bytes() == head + b" P \r 1%\r 2%\n" + head + b" F \r100%\n"
    os.close(writer)
    pipe.close(STAMP)
    log.close()


def test_half_a_line_that_did_not_fit_on_the_disk_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, 10

    def write_to_full_disk(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:room])
        room -= written
        return written

    log = LogFile(str(tmp_path / "0.log"))
    monkeypatch.setattr(os, "write", write_to_full_disk)
    assert log.write(b"one\ntwo\nthree\n") == 8
    room = 10
    assert log.write(b"four\n") == 5
    log.close()
    assert (tmp_path / "0.log").read_bytes() == b"one\ntwo\nfour\n"


def test_logs_of_the_oldest_runs_are_removed_if_they_are_many_or_big(tmp_path: Path) -> None:
    def names() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    for run in range(MAX_RUNS + 2):
        (tmp_path / f"{run}.log").write_bytes(b"x")
    (tmp_path / "1.log.1").touch()
    remove_old_logs(str(tmp_path), MAX_RUNS + 2)
    assert names() == {f"{run}.log" for run in range(2, MAX_RUNS + 2)}

    with (tmp_path / f"{MAX_RUNS}.log.1").open("wb") as big:
        big.truncate(MAX_RUNS_BYTES - 2)
    remove_old_logs(str(tmp_path), MAX_RUNS + 2)
    assert names() == {f"{MAX_RUNS}.log", f"{MAX_RUNS}.log.1", f"{MAX_RUNS + 1}.log"}

    with (tmp_path / f"{MAX_RUNS + 1}.log").open("wb") as big:
        big.truncate(MAX_RUNS_BYTES + 1)
    remove_old_logs(str(tmp_path), MAX_RUNS + 2)
    assert names() == {f"{MAX_RUNS + 1}.log"}  # for `kubectl logs --previous`


BYTES = st.binary(max_size=40) | st.sampled_from([b"\n", b"x" * MAX_LINE_BYTES, b"\n\n", b"P F stdout \n"])


@given(chunks=st.lists(st.tuples(BYTES, st.booleans()), max_size=12), live=st.booleans())
def test_the_output_of_a_container_is_read_back_byte_by_byte(chunks: list[tuple[bytes, bool]], *, live: bool) -> None:
    lines = LineFormatter("stdout")
    decoder = LogDecoder(timestamps=False, since=None, live=live)
    read = b""
    for chunk, flushed in [*chunks, (b"", True)]:
        read += decoder.feed(lines.feed(chunk, STAMP) + (lines.flush(STAMP) if flushed else b""))
    assert read + decoder.finish() == b"".join(chunk for chunk, _ in chunks)


def test_lines_of_two_streams_are_mixed_only_in_a_live_log() -> None:
    log = f"{STAMP} stderr P 10%\n{STAMP} stdout F loss\n{STAMP} stderr F 20%\n{STAMP} stderr P 30%\n".encode()
    for live, expected in ((True, b"10%loss\n20%\n30%"), (False, b"loss\n10%20%\n30%")):
        decoder = LogDecoder(timestamps=False, since=None, live=live)
        assert decoder.feed(log) + decoder.finish() == expected
    stamped = LogDecoder(timestamps=True, since=None)
    assert stamped.feed(log) == f"{STAMP} loss\n{STAMP} 10%20%\n".encode()


def test_what_a_power_failure_left_of_a_record_is_skipped() -> None:
    decoder = LogDecoder(timestamps=False, since=None)
    assert decoder.feed(f"\0\0\0{STAMP} stdout F one\n2026-11-15\n{STAMP} stdout F two\n".encode()) == b"one\ntwo\n"
