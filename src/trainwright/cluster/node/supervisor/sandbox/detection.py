"""Sandbox detection: finds the strongest sandbox level that works on this machine by trying it in a child process.

No kernel setting shows it reliably. Standard library only, because the child is the program of supervisors.
"""

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from trainwright.cluster.linux.seccomp import filter_system_calls
from trainwright.cluster.linux.trees import remove_tree
from trainwright.cluster.node.supervisor.sandbox import sandbox

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervise.py")


class SandboxError(Exception):
    """The requested level does not work on this machine; the message names the cause and the fix."""


class Sandbox(NamedTuple):
    level: str
    user_namespace: bool = False
    """True if it needs a user namespace: for an unprivileged user, or a root user without capabilities."""
    reason: str = ""
    """Why no stronger level works; empty at the strongest."""
    shared_ports: str = "not detected"
    """Why pods have the ports of the machine; empty if each has its own."""


def detect_sandbox(directory: str, *, forced: str | None, python: str) -> Sandbox:
    """The strongest level that works, or the forced one; `python` runs supervisors."""
    if forced == sandbox.PLAIN:
        return Sandbox(sandbox.PLAIN)
    return choose_sandbox(forced, _detect_in_child(directory, python))


def choose_sandbox(forced: str | None, result: dict[str, Any]) -> Sandbox:
    if forced not in {None, *sandbox.LEVELS}:
        raise SandboxError(f"unknown sandbox {forced!r}: choose one of {', '.join(sandbox.LEVELS)}")
    if forced == sandbox.PLAIN:
        return Sandbox(sandbox.PLAIN)
    if result["works"]:
        return Sandbox(sandbox.OVERLAY, bool(result["userNamespace"]))
    if forced == sandbox.OVERLAY:
        raise SandboxError(
            f"sandbox overlay does not work on this machine: {result['reason']}. Run as root, allow unprivileged "
            "user namespaces (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or use plain"
        )
    return Sandbox(sandbox.PLAIN, reason=str(result["reason"]))


def try_overlay(directory: str) -> dict[str, Any]:
    """In the child: tries `overlay` without a user namespace, then with one."""
    reasons = []
    for user_namespace in (False, True):
        trial = os.path.join(directory, f"sandbox-detection-{os.getpid()}-{int(user_namespace)}")
        reason = _run_in_child(lambda trial=trial, user_namespace=user_namespace: _run_trial(trial, user_namespace))  # type: ignore[misc]  # mypy does not infer defaults of lambdas
        remove_tree(trial)
        if reason is None:
            return {"works": True, "userNamespace": user_namespace}
        reasons.append(f"{'in a user namespace' if user_namespace else 'directly'}: {reason}")
    return {"works": False, "reason": "; ".join(reasons)}


def _detect_in_child(directory: str, python: str) -> dict[str, Any]:
    import subprocess  # imported here because the child does not need it

    command = [python, "-I", "-S", PROGRAM, "--detect-sandbox", directory]
    try:
        completed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
        )
    except OSError as error:
        return {"works": False, "reason": f"{python} cannot be run: {error.strerror}"}
    try:
        result: dict[str, Any] = json.loads(completed.stdout)
    except ValueError:
        last = completed.stderr.strip().splitlines()[-1:]
        return {"works": False, "reason": f"the trial ended with status {completed.returncode}: {' '.join(last)}"}
    return result


def _run_trial(directory: str, user_namespace: bool) -> None:
    volume, scratch = os.path.join(directory, "volume"), os.path.join(directory, "scratch")
    os.makedirs(volume)
    sandbox.enter_pod(directory, hostname="sandbox-detection", user_namespace=user_namespace, memory_volumes=[])
    sandbox.make_scratch(scratch)
    target = "/usr/share/trainwright-sandbox-detection/volume"

    def inside() -> None:
        mounts: list[dict[str, object]] = [{"source": volume, "target": target, "readOnly": False}]
        sandbox.enter_container(
            directory, scratch=scratch, mounts=mounts, hidden=[], working_directory="/", user_namespace=user_namespace
        )
        filter_system_calls()
        with open(f"{target}/written", "xb"):
            pass

    reason = _run_in_child(inside)
    if reason is None and not os.path.exists(f"{volume}/written"):
        reason = "a volume did not appear at its mount path"
    if reason is not None:
        raise OSError(0, reason)


def _run_in_child(step: Callable[[], None]) -> str | None:
    """Runs one step in a child process; None if it worked, else the reason."""
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
