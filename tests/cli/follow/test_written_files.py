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

    files = written_files(tmp_path, STARTED, skip=[tmp_path / "cluster"])

    assert written_file_lines(files, tmp_path) == [
        "  checkpoints/step-10.pt  4.0 KiB",
        "  model.pt                2.0 KiB",
    ]


def names(files: list[WrittenFile]) -> list[str]:
    return [file.path.name for file in files]


def test_files_that_changed_after_the_end_are_not_listed(tmp_path: Path) -> None:
    write(tmp_path / "model.pt", 1)
    write(tmp_path / "later.pt", 1, at=STARTED + 60)
    assert names(written_files(tmp_path, STARTED, STARTED + 10)) == ["model.pt"]


def test_files_that_another_program_is_writing_are_not_listed(tmp_path: Path) -> None:
    write(tmp_path / "model.pt", 1)
    with (tmp_path / "run.log").open("w") as log, (tmp_path / "model.pt").open() as reader:
        write(tmp_path / "run.log", 2)
        assert names(written_files(tmp_path, STARTED)) == ["model.pt"]
        assert names(written_files(tmp_path, STARTED, own={os.getpid()})) == ["run.log", "model.pt"]
        assert (log.closed, reader.closed) == (False, False)


def test_elsewhere_only_models_are_listed(tmp_path: Path) -> None:
    for name in ("notes.txt", "model.pt", "checkpoints/step.safetensors", "firefox.sqlite"):
        write(tmp_path / name, 1)
    assert sorted(names(written_files(tmp_path, STARTED, models=True))) == ["model.pt", "step.safetensors"]


def test_many_files_are_summed_up() -> None:
    files = [WrittenFile(Path(f"/d/{number}.pt"), 1024) for number in range(20)]
    lines = written_file_lines(files, Path("/d"))
    assert len(lines) == 9
    assert lines[-1] == "  and 12 more, 20.0 KiB in all"


def test_a_directory_that_does_not_exist_has_no_files(tmp_path: Path) -> None:
    assert written_files(tmp_path / "none", 0.0) == []
    assert written_file_lines([], tmp_path) == []
