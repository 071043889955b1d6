"""Termination messages: from the file, else from the end of the log."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.supervisor.containers.container_exit import end_of_log, read_message
from trainwright.cluster.node.supervisor.containers.cri_log import LineFormatter

STAMP = "2026-11-15T04:05:06.123456789Z"


def read(tmp_path: Path, message: bytes, log: bytes = b"", *, policy: str = "File", failed: bool = True) -> str:
    (tmp_path / "message").write_bytes(message)
    (tmp_path / "log").write_bytes(LineFormatter("stdout").feed(log, STAMP))
    return read_message(str(tmp_path / "message"), policy=policy, failed=failed, log=str(tmp_path / "log"))


def test_the_last_4096_bytes_of_the_file_are_the_message(tmp_path: Path) -> None:
    assert read(tmp_path, b"x" * 10 + b"y" * 4096) == "y" * 4096


def test_the_log_replaces_an_empty_message_only_of_a_failed_container_that_asks_for_it(tmp_path: Path) -> None:
    assert read(tmp_path, b"", b"a\nb\n", policy="FallbackToLogsOnError") == "a\nb\n"
    assert read(tmp_path, b"own", b"a\nb\n", policy="FallbackToLogsOnError") == "own"
    assert read(tmp_path, b"", b"a\nb\n", policy="FallbackToLogsOnError", failed=False) == ""
    assert read(tmp_path, b"", b"a\nb\n") == ""


def test_a_missing_file_is_no_message(tmp_path: Path) -> None:
    assert read_message(str(tmp_path / "none"), policy="FallbackToLogsOnError", failed=True, log="/none") == ""


@given(lines=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\r"), max_size=60), max_size=200))
def test_the_end_of_the_log_has_at_most_80_lines_and_2048_bytes(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    found = end_of_log(LineFormatter("stdout").feed(text, STAMP))
    assert text.endswith(found)
    assert len(found) <= 2048
    assert found.count(b"\n") <= 80
    assert found == b"".join(line.encode() + b"\n" for line in lines[-80:])[-2048:]
