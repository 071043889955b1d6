"""The fork server: a small process from which the supervisors of a node are forked.

A fork takes a millisecond, a new interpreter twenty; and forks share the memory of the modules, which are all imported
here. The agent starts the fork server and sends it the directories of pods over a socket, its standard input, each
after the key of the pod's sessions and a space. An answer is the pid of the supervisor with its pidfd, or a negative
errno. The fork server ends with the agent; the supervisors do not. Standard library only.
"""

from __future__ import annotations

import ctypes
import encodings.ascii  # noqa: F401 - like other modules that are not used here, for supervisors
import errno
import gc
import os
import pwd  # noqa: F401
import resource  # noqa: F401
import signal
import socket
import sys

from trainwright.cluster.linux import listening_sockets  # noqa: F401
from trainwright.cluster.linux.privileges import become_subreaper
from trainwright.cluster.node.supervisor import pod_events, pod_process  # noqa: F401
from trainwright.cluster.node.supervisor.containers import exec_sessions  # noqa: F401
from trainwright.cluster.node.supervisor.files import read_pod, stat_fields
from trainwright.cluster.node.supervisor.lifecycle import handlers, pod_lifecycle, probes  # noqa: F401
from trainwright.cluster.node.supervisor.network import listening_ports, socket_broker  # noqa: F401
from trainwright.cluster.node.supervisor.sandbox import private_layers, sandbox  # noqa: F401

TYPE_CHECKING = False  # importing typing takes four milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_REQUEST = 8192
_MAX_PID = 16


def serve(address_mark: int) -> None:
    """Until the agent closes the socket. Of the other descriptors supervisors inherit `address_mark` alone."""
    try:
        os.set_inheritable(address_mark, False)  # by programs of containers
    except OSError:
        pass  # an agent of an earlier version gives none
    os.closerange(address_mark + 1, os.sysconf("SC_OPEN_MAX"))  # what the shell of `trainwright up` left open
    agent = socket.socket(fileno=0)
    become_subreaper()
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    gc.collect()
    gc.freeze()  # a collection in a supervisor would write to all objects, which copies their memory
    try:
        while request := agent.recv(_MAX_REQUEST):
            session_key, _, directory = request.decode().partition(" ")
            _answer(agent, directory, session_key)
    except ConnectionError:
        pass  # the agent was killed


def _answer(agent: socket.socket, directory: str, session_key: str) -> None:
    try:
        pid, descriptor = _fork_supervisor(directory, session_key)
    except OSError as error:
        agent.send(b"-%d" % (error.errno or errno.EIO))
        return
    try:
        socket.send_fds(agent, [b"%d" % pid], [descriptor])
    finally:
        os.close(descriptor)


def _fork_supervisor(directory: str, session_key: str) -> tuple[int, int]:
    """The pid and pidfd of the supervisor or, if there is none, of a process that has ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it must not be reaped before the pidfd is open
    try:
        if _is_for_root(directory):
            child = _fork_into_pid_namespace(directory, session_key)
            return child, os.pidfd_open(child)
        return _fork_twice(directory, session_key)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _is_for_root(directory: str) -> bool:
    """Whether the pod needs a pid namespace and no user namespace. An error of its files is left to the supervisor."""
    try:
        pod = read_pod(directory)
    except OSError:
        return False
    return pod is not None and pod.get("sandbox") == sandbox.OVERLAY and not pod.get("ownUsers")


def _fork_into_pid_namespace(directory: str, session_key: str) -> int:
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        sandbox.next_child_in_pid_namespace(None)
        try:
            child = os.fork()
            if child == 0:
                os.close(own)
                _become_supervisor(directory, lambda: pod_process.supervise_as_pid_1(directory, session_key))
            return child
        finally:
            sandbox.next_child_in_pid_namespace(own)
    finally:
        os.close(own)


def _fork_twice(directory: str, session_key: str) -> tuple[int, int]:
    """A process cannot enter a pid namespace, only its children; in a user namespace it could not come back from."""
    reader, writer = os.pipe()
    try:
        child = os.fork()
        if child == 0:
            os.close(reader)
            _become_supervisor(directory, lambda: pod_process.supervise(directory, writer, session_key=session_key))
    finally:
        os.close(writer)
    try:
        pid = int(os.read(reader, _MAX_PID) or child)
        descriptor = os.pidfd_open(pid)
        if pid != child:
            os.waitpid(child, 0)  # then the supervisor is a child of this process
        return pid, descriptor
    finally:
        os.close(reader)


def _become_supervisor(directory: str, supervise: Callable[[], None]) -> None:
    status: object = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(f"{directory}/supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for source, target in ((null, 0), (log, 1), (log, 2)):  # 0 was the socket
            os.dup2(source, target)
        os.close(null)
        os.close(log)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        _set_command_line([*sys.orig_argv[:-1], directory])
        supervise()
        status = 0
    except SystemExit as exit_:
        status = exit_.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # to the log
    finally:
        os._exit(status if isinstance(status, int) else 1)


def _set_command_line(words: list[str]) -> None:
    """What `ps` shows. The last argument of the fork server leaves room for it."""
    fields = stat_fields("/proc/self")
    start, end = int(fields[45]), int(fields[46])
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
