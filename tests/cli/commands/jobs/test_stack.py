"""`trainwright stack` with the real py-spy and with faulthandler."""

import signal
import sys
from pathlib import Path

import pytest

from tests.cli.commands.jobs.conftest import Cluster
from tests.support.objects.shell_jobs import shell_job
from tests.support.waiting import wait_until
from trainwright.cli.commands.jobs.stack import catches, find_py_spy
from trainwright.cli.pods_python import install_command
from trainwright.objects.node_annotations import PYTHON

HANGS = """
import faulthandler, signal, sys, time
faulthandler.register(signal.SIGUSR1)
def wait_for_the_peer():
    print("hanging", flush=True)
    time.sleep(600)
wait_for_the_peer()
"""


def test_the_stacks_of_all_ranks_are_printed(embedded_namespace: Cluster, tmp_path: Path) -> None:
    cluster = embedded_namespace
    # Beside this Python there is no py-spy.
    program = f"exec {Path(sys.executable).resolve()} -c '{HANGS}'"
    planted, executed = tmp_path / "bin" / "py-spy", tmp_path / "executed"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {executed}\n")
    planted.chmod(0o755)
    (planted.parent / "python").symlink_to(sys.executable)
    job = shell_job("digits", program, program, workers=1)
    job["metadata"]["annotations"] = {PYTHON: str(planted.parent / "python")}
    cluster.create(job)
    wait_until(lambda: cluster.call("logs", "digits").stdout.count("hanging") == 2)

    stacks = cluster.succeed("stack", "digits")
    assert not executed.exists(), "an annotation and the name of a process are a tenant's words"
    assert stacks.count("wait_for_the_peer (<string>:6)") == 2
    assert "master-0: pid " in stacks
    [title] = [line for line in stacks.splitlines() if line.startswith("worker-0: pid ")]
    assert Path(f"/proc/{title.split()[2].rstrip(':')}").exists(), "pids are those of the host"
    by_signal = cluster.succeed("stack", "digits", "--rank", "worker-0", "--signal", "USR1")
    assert 'File "<string>", line 6 in wait_for_the_peer' in by_signal
    assert "master-0" not in by_signal
    refused = cluster.call("stack", "digits", "--signal", "USR2")
    assert "it has no handler for SIGUSR2" in refused.stderr
    assert refused.exit_code == 1


def test_on_any_cluster_py_spy_runs_inside_the_pods(by_api: Cluster) -> None:
    program = f"exec {sys.executable} -c '{HANGS}'"
    by_api.create(shell_job("digits", program, program, workers=1))
    wait_until(lambda: by_api.call("logs", "digits").stdout.count("hanging") == 2)

    stacks = by_api.succeed("stack", "digits")
    assert stacks.count("wait_for_the_peer (<string>:6)") == 2
    assert "master-0: pid " in stacks
    by_signal = by_api.succeed("stack", "digits", "--rank", "worker-0", "--signal", "USR1")
    assert 'File "<string>", line 6 in wait_for_the_peer' in by_signal
    refused = by_api.call("stack", "digits", "--signal", "USR2")
    assert "it has no handler for SIGUSR2" in refused.stderr
    assert refused.exit_code == 1


def test_without_py_spy_the_command_that_installs_it_for_the_users_python_is_named(
    embedded_namespace: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = embedded_namespace
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    cluster.create(shell_job("digits", f"exec {sys.executable} -c '{HANGS}'"))
    wait_until(lambda: "hanging" in cluster.call("logs", "digits").stdout)

    monkeypatch.setattr("trainwright.cli.commands.jobs.stack.find_py_spy", lambda *_: None)
    text = cluster.fail("stack", "digits")
    assert f"py-spy is not installed: `{install_command(sys.executable)} py-spy`" in text
    assert "master-0 handles SIGUSR1" in text


def test_py_spy_is_found_beside_the_python_of_the_cluster(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.touch(mode=0o755)
    assert find_py_spy("python3", str(tmp_path / "python")) == str(program)


def test_a_job_without_python_says_so(embedded_namespace: Cluster, real: Cluster) -> None:
    embedded_namespace.create(shell_job("digits", "true", runPolicy={"suspend": True}))
    assert "has no running Python process" in embedded_namespace.fail("stack", "digits")
    real.create(shell_job("digits", "true"))
    assert "has no running Python process" in real.fail("stack", "digits")


def test_handled_signals_are_read_from_proc() -> None:
    import os

    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert catches(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not catches(2**22, signal.SIGUSR2)
