"""Sandbox detection: finds the strongest sandbox level that works on this machine by trying it in a child process.

No kernel setting shows it reliably. Standard library only, because the child is the program of supervisors.
"""

import errno
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from trainwright.cluster.linux.seccomp import architectures, filter_system_calls
from trainwright.cluster.linux.trees import remove_tree
from trainwright.cluster.node.supervisor.files import read_text
from trainwright.cluster.node.supervisor.network.pod_addresses import PodAddresses
from trainwright.cluster.node.supervisor.network.socket_broker import SocketBroker
from trainwright.cluster.node.supervisor.poller import Poller
from trainwright.cluster.node.supervisor.sandbox import sandbox

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supervise.py")

_SHARED_PORTS = "shared-ports"
_TRIAL_ADDRESS = "127.255.255.254"
_TRIAL_SECONDS = 5.0
_WRONG_ADDRESS = 255


class SandboxError(Exception):
    """The requested level does not work on this machine; the message names the cause and the fix."""


class Sandbox(NamedTuple):
    level: str
    user_namespace: bool = False
    """True if it needs a user namespace: for an unprivileged user, or a root user without capabilities."""
    reason: str = ""
    """Why no stronger level works; empty at the strongest."""
    shared_ports: str = ""
    """Why pods have the ports of the machine; empty if each has its own."""


def detect_sandbox(directory: str, *, forced: str | None, python: str) -> Sandbox:
    """The strongest level that works, or the forced one; `python` runs supervisors."""
    return choose_sandbox(forced, _detect_in_child(directory, python))


def choose_sandbox(forced: str | None, result: dict[str, Any]) -> Sandbox:
    if forced not in {None, *sandbox.LEVELS}:
        raise SandboxError(f"unknown sandbox {forced!r}: choose one of {', '.join(sandbox.LEVELS)}")
    if forced == sandbox.PLAIN:
        return Sandbox(sandbox.PLAIN, shared_ports=str(result["sharedPorts"][sandbox.PLAIN]))
    if result["works"]:
        shared_ports = str(result["sharedPorts"][sandbox.OVERLAY])
        return Sandbox(sandbox.OVERLAY, bool(result["userNamespace"]), shared_ports=shared_ports)
    if forced == sandbox.OVERLAY:
        raise SandboxError(
            f"sandbox overlay does not work on this machine: {result['reason']}. Run as root, allow unprivileged "
            "user namespaces (on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or use plain"
        )
    return Sandbox(sandbox.PLAIN, reason=str(result["reason"]), shared_ports=str(result["sharedPorts"][sandbox.PLAIN]))


def try_machine(directory: str, unsealed: str) -> dict[str, Any]:
    """In the child: what works here. `unsealed` is why `overlay` would not be safe; empty if it is."""
    found = {"works": False, "reason": unsealed} if unsealed else _try_overlay(directory)
    shared = {sandbox.OVERLAY: found.pop("sharedPorts", ""), sandbox.PLAIN: _run_in_child(try_own_ports) or ""}
    return {**found, "sharedPorts": shared}


def _try_overlay(directory: str) -> dict[str, Any]:
    """Without a user namespace, then with one."""
    reasons = []
    for user_namespace in (False, True):
        trial = os.path.join(directory, f"sandbox-detection-{os.getpid()}-{int(user_namespace)}")
        reason = _run_in_child(lambda trial=trial, user_namespace=user_namespace: _run_trial(trial, user_namespace))  # type: ignore[misc]  # mypy does not infer defaults of lambdas
        shared_ports = read_text(os.path.join(trial, _SHARED_PORTS))
        remove_tree(trial)
        if reason is None:
            return {"works": True, "userNamespace": user_namespace, "sharedPorts": shared_ports}
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
        return _failure(f"{python} cannot be run: {error.strerror}")
    try:
        result: dict[str, Any] = json.loads(completed.stdout)
    except ValueError:
        last = completed.stderr.strip().splitlines()[-1:]
        return _failure(f"the trial ended with status {completed.returncode}: {' '.join(last)}")
    return result


def _failure(reason: str) -> dict[str, Any]:
    return {"works": False, "reason": reason, "sharedPorts": dict.fromkeys(sandbox.LEVELS, reason)}


def _run_trial(directory: str, user_namespace: bool) -> None:
    volume, scratch = os.path.join(directory, "volume"), os.path.join(directory, "scratch")
    os.makedirs(volume)
    pod: Any = {"hostname": "sandbox-detection", "ownUsers": user_namespace, "memoryVolumes": [], "hidden": []}
    sandbox.enter_pod(directory, pod)
    sandbox.make_scratch(scratch)
    target = "/usr/share/trainwright-sandbox-detection/volume"

    def inside() -> None:
        container: Any = {"mounts": [{"source": volume, "target": target, "readOnly": False}], "cwd": "/"}
        sandbox.enter_container(directory, pod, container, scratch)
        filter_system_calls()
        with open(f"{target}/written", "xb"):
            pass

    def as_pid_1() -> None:
        proc = sandbox.mount_proc(directory)
        with open(os.path.join(directory, _SHARED_PORTS), "x", encoding="utf-8") as file:
            file.write(_run_in_child(lambda: try_own_ports(proc)) or "")
        if reason := _run_in_child(inside):
            raise OSError(0, reason)

    reason = _run_in_child(as_pid_1)
    if reason is None and not os.path.exists(f"{volume}/written"):
        reason = "a volume did not appear at its mount path"
    if reason is not None:
        raise OSError(0, reason)


def try_own_ports(proc: str | None = "/proc") -> None:
    """Binds a socket in a child as a program of a pod would; raises OSError unless it gets the address of the pod."""
    if not architectures():
        raise OSError(errno.ENOSYS, f"unknown processor {os.uname().machine}")
    poller = Poller()
    broker = SocketBroker(PodAddresses(_TRIAL_ADDRESS, _TRIAL_ADDRESS), proc=proc, poller=poller)
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port = own.getsockname()[1]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = _bind_in_trial(broker, port)
        except OSError as error:
            status = error.errno or status
        finally:
            os._exit(status)
    deadline = time.monotonic() + _TRIAL_SECONDS
    while (waited := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        poller.wait(10)
    if waited[0] == 0:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        raise OSError(errno.ETIMEDOUT, "system calls are not answered")
    if number := os.waitstatus_to_exitcode(waited[1]):
        reason = "a socket did not get the address of its pod" if number == _WRONG_ADDRESS else os.strerror(number)
        raise OSError(number, f"cannot answer system calls of programs (seccomp): {reason}")


def _bind_in_trial(broker: SocketBroker, port: int) -> int:
    """In the child: 0 if it worked."""
    listener = filter_system_calls(refuse=False, notify=True)
    assert listener is not None  # noqa: S101 - the processor is known
    broker.send_listener(listener)
    with socket.socket() as own:
        own.bind(("0.0.0.0", port))  # noqa: S104 - as programs do
        return 0 if own.getsockname()[0] == _TRIAL_ADDRESS else _WRONG_ADDRESS


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
