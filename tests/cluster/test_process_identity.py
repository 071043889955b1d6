import os
import subprocess
import sys

from trainwright.cluster.process_identity import ProcessIdentity, identify


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(child.pid)
    assert identity is not None
    assert identity.alive

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is still a zombie
    assert not identity.alive

    child.communicate()
    assert identify(child.pid) is None


def test_a_reused_pid_or_another_boot_is_another_process() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me.alive
    assert not ProcessIdentity(me.pid, me.start_ticks + 1, me.boot_id).alive
    assert not ProcessIdentity(me.pid, me.start_ticks, "another-boot").alive
