"""Which sandbox this machine allows: tried for real at the start of the agent, in a child, because no setting tells.

Standard library only: the trial runs in the program that supervises pods.
"""

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from trainwright.cluster.node.supervisor import sandbox
from trainwright.cluster.node.supervisor.files import remove_tree

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervise.py")


class SandboxError(Exception):
    """The level that was asked for does not work here; the message says why and what to do."""


class Sandbox(NamedTuple):
    level: str
    own_users: bool = False
    """Whether it takes a user namespace: an ordinary user's way, and that of a root with few rights."""
    reason: str = ""
    """Why no stronger level works."""


def find_sandbox(directory: str, *, forced: str | None, python: str) -> Sandbox:
    """The strongest level that works, or the forced one; `python` is the interpreter of supervisors."""
    if forced == sandbox.PLAIN:
        return Sandbox(sandbox.PLAIN)
    return choose(forced, _ask_child(directory, python))


def choose(forced: str | None, finding: dict[str, Any]) -> Sandbox:
    if forced not in {None, *sandbox.LEVELS}:
        raise SandboxError(f"unknown sandbox {forced!r}: choose one of {', '.join(sandbox.LEVELS)}")
    if forced == sandbox.PLAIN:
        return Sandbox(sandbox.PLAIN)
    if finding["works"]:
        return Sandbox(sandbox.OVERLAY, bool(finding["ownUsers"]))
    if forced == sandbox.OVERLAY:
        raise SandboxError(
            f"sandbox overlay does not work on this machine: {finding['reason']}. Run as root, allow unprivileged "
            "user namespaces (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or use plain"
        )
    return Sandbox(sandbox.PLAIN, reason=str(finding["reason"]))


def try_overlay(directory: str) -> dict[str, Any]:
    """The trial itself, in the child: first without a user namespace, then with one."""
    reasons = []
    for own_users in (False, True):
        trial = os.path.join(directory, f"probe-{os.getpid()}-{int(own_users)}")
        reason = _attempt(lambda trial=trial, own_users=own_users: _run_trial(trial, own_users))  # type: ignore[misc]  # mypy does not infer defaults of lambdas
        remove_tree(trial)
        if reason is None:
            return {"works": True, "ownUsers": own_users}
        reasons.append(f"{'in a user namespace' if own_users else 'directly'}: {reason}")
    return {"works": False, "reason": "; ".join(reasons)}


def _ask_child(directory: str, python: str) -> dict[str, Any]:
    import subprocess  # late: the child itself does without

    command = [python, "-I", "-S", PROGRAM, "--probe", directory]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
    except OSError as error:
        return {"works": False, "reason": f"{python} cannot be run: {error.strerror}"}
    try:
        finding: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().splitlines()[-1:]
        return {"works": False, "reason": f"the trial ended with status {done.returncode}: {' '.join(last)}"}
    return finding


def _run_trial(directory: str, own_users: bool) -> None:
    volume, scratch = os.path.join(directory, "volume"), os.path.join(directory, "scratch")
    os.makedirs(volume)
    os.makedirs(scratch)
    sandbox.enter_pod(directory, hostname="probe", own_users=own_users, memory_volumes=[])
    target = "/usr/share/trainwright-probe/volume"

    def inside() -> None:
        mounts: list[dict[str, object]] = [{"source": volume, "target": target, "readOnly": False}]
        sandbox.enter_container(directory, scratch=scratch, mounts=mounts, working_directory="/", own_users=own_users)
        with open(f"{target}/written", "xb"):
            pass

    reason = _attempt(inside)
    if reason is None and not os.path.exists(f"{volume}/written"):
        reason = "a volume did not arrive where it was mounted"
    if reason is not None:
        raise OSError(0, reason)


def _attempt(step: Callable[[], None]) -> str | None:
    """Runs one step in a child process; None if it worked, else why not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            step()
            status = 0
        except OSError as error:
            os.write(writer, (error.strerror or str(error)).encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        reason = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return None if status == 0 else reason or f"the trial ended with status {status}"
