"""The files that a run left: names and sizes, without caches and environments."""

import os
from pathlib import Path

from trainwright.cli.follow.written_files import WrittenFile, written_file_lines, written_files

STARTED = 1_000_000.0


def write(path: Path, size: int, *, at: float = STARTED + 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))


def test_only_files_of_this_run_are_listed(tmp_path: Path) -> None:
    write(tmp_path / "train.py", 10, at=STARTED - 60)
    write(tmp_path / "model.pt", 2048)
    write(tmp_path / "checkpoints" / "step-10.pt", 4096)
    for skipped in (".git/index", "__pycache__/train.pyc", "env-2/pyvenv.cfg", "env-2/lib/x.so", ".hidden"):
        write(tmp_path / skipped, 9000)
    write(tmp_path / "cluster" / "store.db", 9000)
    (tmp_path / "link").symlink_to(tmp_path / "model.pt")

    files = written_files(tmp_path, STARTED, skip=tmp_path / "cluster")

    assert written_file_lines(files, tmp_path) == [
        "  checkpoints/step-10.pt  4.0 KiB",
        "  model.pt                2.0 KiB",
    ]


def test_many_files_are_summed_up() -> None:
    files = [WrittenFile(Path(f"/d/{number}.pt"), 1024) for number in range(20)]
    lines = written_file_lines(files, Path("/d"))
    assert len(lines) == 9
    assert lines[-1] == "  and 12 more, 20.0 KiB in all"


def test_a_directory_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    assert written_files(tmp_path / "none", 0.0) == []
    assert written_file_lines([], tmp_path) == []
