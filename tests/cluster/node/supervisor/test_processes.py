"""Killing what a pod has started, without a process namespace."""

import subprocess
import sys
import uuid

from tests.support.cluster.supervised_pods import processes_with

PROGRAM = """
import ctypes, subprocess, sys, time
from trainwright.cluster.node.supervisor.processes import kill_descendants
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
script = f'for i in 1 2 3 4 5 6 7 8; do setsid sh -c "sleep 600; : {sys.argv[1]}" & done; echo started; wait'
child = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
child.stdout.readline()
kill_descendants(is_pid_1=False)
child.returncode = -9
"""


def test_processes_in_sessions_of_their_own_are_killed_and_reaped() -> None:
    marker = f"marker-{uuid.uuid4()}"
    subprocess.run([sys.executable, "-c", PROGRAM, marker], check=True, timeout=30)
    assert processes_with(marker) == []
