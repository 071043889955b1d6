"""What is said about files that only the pods of a job can see."""

from pathlib import Path

import pytest

from trainwright.cli.follow.texts.private_file_lines import format_size, private_file_lines
from trainwright.cluster.facade import PrivateFile


def file(path: str, size: int = 8, volume: str = "") -> PrivateFile:
    return PrivateFile(container="pytorch", path=path, size=size, source=Path("/node") / path[1:], volume=volume)


def test_nothing_is_said_without_private_files() -> None:
    assert private_file_lines([], cp="trainwright cp") == []


def test_a_private_file_is_named_with_how_to_fetch_and_to_keep_it() -> None:
    assert private_file_lines([("job-master-0", file("/tmp/out/model.pt", 12_900_000))], cp="trainwright cp") == [
        "1 file is private to its pod, and kept until the job is deleted:",
        "  job-master-0  /tmp/out/model.pt  12.3 MiB",
        "  fetch one:  trainwright cp job-master-0:/tmp/out/model.pt .",
        "  keep them:  write below your home or the directory of the job, or mount a volume at /tmp",
    ]


def test_the_biggest_files_of_all_pods_are_named_and_the_rest_counted() -> None:
    files = [(f"job-worker-{rank}", file(f"/srv/{rank}", size=100 + rank)) for rank in range(12)]
    lines = private_file_lines(files, cp="trainwright cp")
    assert lines[0] == "12 files are private to their pods, and kept until the job is deleted:"
    assert lines[1] == "  job-worker-11  /srv/11  111 B"
    assert lines[2] == "  job-worker-10  /srv/10  110 B"
    assert lines[3] == "  job-worker-9   /srv/9  109 B"
    assert lines[11] == "  and 2 more, 1.2 KiB in all"
    assert lines[12] == "  fetch one:  trainwright cp job-worker-11:/srv/11 ."
    assert lines[13].endswith("mount a volume at /srv")


def test_an_empty_dir_is_named_as_a_volume_that_ends_with_its_pod() -> None:
    assert private_file_lines([("job-master-0", file("/out/model.pt", volume="out"))], cp="trainwright cp") == [
        "1 file is in emptyDir volumes, which are deleted with their pods:",
        "  job-master-0  /out/model.pt  8 B",
        "  keep them:  use a persistentVolumeClaim or a hostPath for volume out",
    ]


def test_files_of_a_job_that_is_deleted_are_only_listed() -> None:
    files = [("job-master-0", file("/tmp/model.pt")), ("job-master-0", file("/out/log", 4, volume="out"))]
    assert private_file_lines(files, cp="trainwright cp", removed=True) == [
        "These files were only in the pods, and are deleted with the job because of --rm:",
        "  job-master-0  /tmp/model.pt  8 B",
        "  job-master-0  /out/log  4 B",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert format_size(size) == text
