"""The log of a detached cluster does not grow without end."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, pathlib
from trainwright.cli.up.cluster_log import rotate
log = pathlib.Path(sys.argv[1])
print("first", flush=True)
assert not rotate(log, max_bytes=100)
print("x" * 100, flush=True)
assert rotate(log, max_bytes=100)
print("second", flush=True)
print("third", file=sys.stderr, flush=True)
assert not rotate(log, max_bytes=100)
"""


def test_a_log_that_is_too_long_is_continued_in_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "cluster.log"
    with log.open("ab") as output:
        subprocess.run([sys.executable, "-c", PROGRAM, str(log)], stdout=output, stderr=output, check=True)
    assert log.read_text() == "second\nthird\n"
    assert (tmp_path / "cluster.log.1").read_text() == f"first\n{'x' * 100}\n"


def test_a_file_that_this_process_does_not_write_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "cluster.log"
    log.write_text("of another cluster" * 20)
    with (tmp_path / "output").open("ab") as output:
        code = "import sys, pathlib; from trainwright.cli.up.cluster_log import rotate; print('x' * 99, flush=True); "
        code += "sys.exit(rotate(pathlib.Path(sys.argv[1]), max_bytes=10))"
        subprocess.run([sys.executable, "-c", code, str(log)], stdout=output, check=True)
    assert log.read_text() == "of another cluster" * 20
