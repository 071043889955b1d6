"""The processes below a supervisor: which there are, ending them, and what the kernel says about their end.

Standard library only.
"""

import os
import re
import signal
import time

_ALL = -1


def listed(proc: str) -> dict[int, tuple[int, int]]:
    """pid -> (parent, session) of every process that this /proc shows, ended ones excepted."""
    found = {}
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                with open(f"{proc}/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue
            fields = text[text.rindex(")") + 2 :].split()
            if fields[0] not in {"Z", "X"}:
                found[int(entry)] = (int(fields[1]), int(fields[3]))
    return found


def descendants(processes: dict[int, tuple[int, int]], ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [ancestor]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def end_session(session: int, proc: str) -> None:
    """Kills what a container leaves behind when its first process has ended."""
    for pid, (_, its_session) in listed(proc).items():
        if its_session == session:
            kill(pid, signal.SIGKILL)


def end_orphans(session: int, *, variable: str) -> None:
    """Kills what is left of a container whose supervisor is gone, as only at `plain` something can be.

    A number may be in use again: only processes that have this variable of the container are meant.
    """
    for pid, (_, its_session) in listed("/proc").items():
        if its_session == session and variable.encode() in _environment(pid):
            kill(pid, signal.SIGKILL)


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def end_all_below(*, process_one: bool) -> None:
    """Kills every process below this one, and reaps them."""
    while True:
        if process_one:
            kill(_ALL, signal.SIGKILL)
        else:
            for pid in descendants(listed("/proc"), os.getpid()):
                kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(_ALL, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def killed_for_memory(pid: int) -> bool:
    """Whether the kernel's log, where it may be read, says that it killed this process for want of memory."""
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    killed = re.compile(rb"Killed process %d " % pid)
    try:
        while True:
            try:
                if killed.search(os.read(log, 8192)):
                    return True
            except BrokenPipeError:  # the oldest records went while we read
                continue
    except OSError:
        return False  # no more records
    finally:
        os.close(log)
