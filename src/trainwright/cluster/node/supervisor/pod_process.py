"""The process of a pod from its start: takes the pod's lock, enters its namespaces, mounts its NFS volumes, and becomes
its supervisor.

Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys

from trainwright.cluster.linux import privileges
from trainwright.cluster.linux.privileges import become_subreaper, die_with_parent
from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.files import own_identity, read_json, write_json
from trainwright.cluster.node.supervisor.main_loop import Supervisor
from trainwright.cluster.node.supervisor.sandbox import sandbox

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import NfsVolumeJson, PodJson

EXIT_ALREADY_SUPERVISED = 75
"""Exit status if another supervisor of the same pod is running."""

_MOUNT_SECONDS = 60.0


def main(arguments: list[str], unsealed: str) -> None:
    """`unsealed` says why containers could change this Python; empty if they cannot."""
    if arguments[0] == "--detect-sandbox":
        from trainwright.cluster.node.supervisor.sandbox import detection  # pods do not need it

        sys.stdout.write(json.dumps(detection.try_machine(arguments[1], unsealed)))
        return
    supervise(os.path.abspath(arguments[0]))


def supervise(directory: str, reports: int | None = None, *, session_key: str = "") -> None:
    """Supervises the pod in this process or, if it has a pid namespace, in a child: pid 1 of the pod.

    `session_key` is what the agent sends to open sessions; it is in no file that a pod could see. `reports` is a pipe
    to which the pid of the supervisor is written; this process does not wait for the child then. Without it, this
    process stays in the foreground, and the pod ends with it.
    """
    pod = _take_pod(directory)
    if pod["sandbox"] == sandbox.PLAIN:
        _register(directory)
        _report(os.getpid(), reports)
        become_subreaper()
        Supervisor(directory, pod, is_pid_1=False, session_key=session_key).run()
    elif _enter_namespaces(directory, pod):
        child = os.fork()
        if child == 0:
            _run_child(directory, pod, reports, session_key)
        if reports is None:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        _report(child, reports)


def supervise_as_pid_1(directory: str, session_key: str) -> None:
    """In a process that was forked into a pid namespace for the pod."""
    pod = _take_pod(directory)
    if _enter_namespaces(directory, pod, pid_namespace=False):
        _run_as_pid_1(directory, pod, session_key)


def _take_pod(directory: str) -> PodJson:
    """pod.json, locked for this process."""
    pod: PodJson = read_json(os.path.join(directory, "pod.json"))
    lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the supervisor has ended, which inherits it
    except BlockingIOError:
        sys.exit(EXIT_ALREADY_SUPERVISED)
    processes.limit_open_files(pod.get("openFiles"))
    signal.pthread_sigmask(signal.SIG_BLOCK, processes.SIGNALS)
    return pod


def _enter_namespaces(directory: str, pod: PodJson, *, pid_namespace: bool = True) -> bool:
    """False if the kernel refused, with which the pod has failed."""
    try:
        sandbox.enter_pod(directory, pod, pid_namespace=pid_namespace)
    except OSError as error:
        _register(directory)
        Supervisor(directory, pod, is_pid_1=False).fail("SandboxFailed", error.strerror or str(error))
        return False
    return True


def _report(pid: int, reports: int | None) -> None:
    if reports is not None:
        os.write(reports, b"%d" % pid)
        os.close(reports)


def _run_child(directory: str, pod: PodJson, reports: int | None, session_key: str) -> None:
    try:
        if reports is None:
            die_with_parent(signal.SIGKILL)
        else:
            os.close(reports)
            os.setsid()
        _run_as_pid_1(directory, pod, session_key)
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _run_as_pid_1(directory: str, pod: PodJson, session_key: str) -> None:
    """The agent can signal it from outside: its signals are blocked until it has handlers, and so they are not lost."""
    _register(directory)
    if not pod["ownUsers"]:
        privileges.hide_process()  # it sees the host's files; in a user namespace only its capabilities count
    volumes = pod.get("nfsVolumes")
    if volumes and (failure := mount_nfs_volumes(pod.get("nfsProgram") or "", volumes)):
        os.unlink(os.path.join(directory, "supervisor.json"))  # nothing has started: the agent tries again
        sys.stderr.write(f"{failure}\n")
        sys.stderr.flush()
        os._exit(1)
    Supervisor(directory, pod, is_pid_1=True, session_key=session_key).run()


def _register(directory: str) -> None:
    write_json(os.path.join(directory, "supervisor.json"), own_identity(), durable=False)  # meaningless after a reboot


def mount_nfs_volumes(program: str, volumes: list[NfsVolumeJson]) -> str:
    """As root, in the namespaces of the pod, so that they end with it. Returns the failure in the kubelet's words, in
    one line; empty if none."""
    for volume in volumes:
        arguments = [program, volume["source"], volume["path"], "-o", volume["options"]]
        reader, writer = os.pipe()
        child = os.posix_spawn(
            program,
            arguments,
            {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)],
            setsigmask=[],
        )
        os.close(writer)
        output = _read_output(reader, child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            text = " ".join(output.decode(errors="replace").split())
            command = f"Mounting command: mount.nfs Mounting arguments: {' '.join(arguments[1:])} Output: {text}"
            return (
                f'MountVolume.SetUp failed for volume "{volume["name"]}" : mount failed: exit status {status} {command}'
            )
    return ""


def _read_output(reader: int, child: int) -> bytes:
    """The output of the child, which is killed if it takes too long."""
    output = b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], _MOUNT_SECONDS)[0]:
            piece = pipe.read(4096)
            if not piece:
                return output
            output += piece
    os.kill(child, signal.SIGKILL)
    return output + b"timed out"
