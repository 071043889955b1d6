"""Pseudo-terminals of containers and exec sessions. Standard library only; imported on use."""

from __future__ import annotations

import array  # noqa: F401 - socket imports it on use, which may be where its file cannot be seen
import fcntl
import os
import signal
import socket
import struct
import termios

from trainwright.cluster.linux.privileges import die_with_parent
from trainwright.cluster.node.supervisor import processes
from trainwright.cluster.node.supervisor.files import receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ENVIRONMENT = {"TERM": "xterm"}
"""What container runtimes add to the environment of a program with a terminal."""

_MARK = b"\0"
"""Carries the descriptor: one cannot be sent without data."""


def start_channel() -> tuple[int, int]:
    """Like a pipe from the child of a container with a terminal to the supervisor, which can transfer a descriptor."""
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return reader.detach(), writer.detach()


def send_terminal(channel: int, master: int) -> None:
    """In the child."""
    with socket.socket(fileno=os.dup(channel)) as writer:
        socket.send_fds(writer, [_MARK], [master])


def receive_report(channel: int, size: int) -> tuple[bytes, int | None]:
    """What the child reports, and its terminal if that came with it. Nothing at the end."""
    with socket.socket(fileno=os.dup(channel)) as reader:
        data, descriptors, _ = receive(reader, size, 1)
    return data.replace(_MARK, b""), descriptors[0] if descriptors else None


def enter_terminal(send: Callable[[int], None]) -> None:
    """In a child that leads its session: returns in a child of that one, which has a new terminal as stdin, stdout and
    stderr. `send` is called with the terminal's other end.

    The terminal is one of the container's own /dev, so that programs find its name. When the leader of a session ends,
    the kernel drops output that is on its way through the terminal; so the leader is not the program, but waits for it
    and ends as the program did.
    """
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for target in (0, 1, 2):
        os.dup2(slave, target)
    send(master)
    program = os.fork()
    if program:
        _lead(program)
    die_with_parent(signal.SIGKILL)
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # sent to a process in the background that changes the foreground
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)


def _lead(program: int) -> None:
    """Forwards signals to the program and waits for its end. Does not return."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: processes.kill(program, number))
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # others wait for the end of what this process has inherited
    status = os.waitpid(program, 0)[1]
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # Processes in the foreground get SIGHUP, as if the leader had ended, but output is kept.
        fcntl.ioctl(0, termios.TIOCNOTTY)
    except OSError:
        pass  # the other end is closed
    if os.WIFSIGNALED(status):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def resize(master: int, width: int, height: int) -> None:
    """The kernel sends SIGWINCH to the foreground processes."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
