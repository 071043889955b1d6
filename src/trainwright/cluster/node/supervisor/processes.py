"""The processes below a supervisor: executing programs, listing and killing processes, finding out whether the kernel
killed them.

Standard library only.
"""

import errno
import os
import re
import signal
import stat

from trainwright.cluster.node.supervisor.files import stat_fields

SIGNALS = {signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP}
"""Those that a supervisor handles."""

_ALL = -1
_NULL = os.makedev(1, 3)


def list_processes(proc: str) -> dict[int, tuple[int, int]]:
    """pid -> (parent, session) of every process in this /proc, without zombies."""
    found = {}
    for entry in os.listdir(proc):
        if entry.isdigit():
            try:
                fields = stat_fields(f"{proc}/{entry}")
            except OSError:
                continue
            if fields[0] not in {"Z", "X"}:
                found[int(entry)] = (int(fields[1]), int(fields[3]))
    return found


def descendants(processes: dict[int, tuple[int, int]], ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in processes.items():
        children.setdefault(parent, []).append(pid)
    found, pending = [], [ancestor]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def kill_session(session: int, proc: str) -> None:
    """Kills the processes that a container leaves behind when its first process has ended."""
    for pid, (_, its_session) in list_processes(proc).items():
        if its_session == session:
            kill(pid, signal.SIGKILL)


def kill_orphans(session: int, *, variable: str) -> None:
    """Kills the remaining processes of a container whose supervisor has ended, which can happen only at `plain`.

    A session id may be reused, so only processes that have this variable of the container are killed.
    """
    for pid, (_, its_session) in list_processes("/proc").items():
        if its_session == session and variable.encode() in _environment(pid):
            kill(pid, signal.SIGKILL)


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def kill_descendants(*, is_pid_1: bool) -> None:
    """Kills and reaps every process below this one."""
    while True:
        if is_pid_1:
            kill(_ALL, signal.SIGKILL)
        else:
            for pid in descendants(list_processes("/proc"), os.getpid()):
                kill(pid, signal.SIGKILL)
        try:
            # One of the killed processes ends, whatever others fork meanwhile; they are in the next list.
            os.waitpid(_ALL, 0)
            while os.waitpid(_ALL, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def kill_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def handles_sigterm(pid: int, proc: str) -> bool:
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            caught = next(line for line in file if line.startswith(b"SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def was_oom_killed(pid: int) -> bool:
    """True if the kernel's log can be read and says that the OOM killer ended this process."""
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
            except BrokenPipeError:  # the oldest records were overwritten meanwhile
                continue
    except OSError:
        return False  # no more records
    finally:
        os.close(log)


def limit_open_files(limit: int | None) -> None:
    """Lowers the soft limit of this process and its later children; None changes nothing."""
    if limit is not None:
        import resource  # imported here: other users of this module do not need it

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or limit < soft):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def fork() -> int:
    """In the child signals stay blocked until `reset_signals`: a handler would swallow one that is for its program."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    child = -1
    try:
        child = os.fork()
        return child
    finally:
        if child:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def reset_signals() -> None:
    """Those that supervisors handle. Python ignores two more, which `execute` resets."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def execute(argv: list[str], env: dict[str, str]) -> None:
    """Replaces this process by a program. The error says which program and why."""
    _reopen_null()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        _search_and_execute(argv, env)
    except FileNotFoundError as error:
        found = "no such file or directory, or its interpreter is missing"
        missing = found if "/" in argv[0] else "executable file not found in $PATH"
        raise OSError(error.errno, f'exec: "{argv[0]}": {missing}') from error
    except OSError as error:
        raise OSError(error.errno, f'exec: "{argv[0]}": {reason(error)}') from error


def _reopen_null() -> None:
    """What was opened outside of the container is the device of the machine, whose mode root could change."""
    for descriptor in (0, 1, 2):
        status = os.fstat(descriptor)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL:
            own = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(own, descriptor)
            os.close(own)


def change_directory(path: str) -> None:
    """Refuses a directory outside of the root directory, to which links in /proc can lead."""
    try:
        os.chdir(path)
        os.getcwd()
    except OSError as error:
        raise OSError(error.errno, f"working directory {path}: {reason(error)}") from error


def _search_and_execute(argv: list[str], env: dict[str, str]) -> None:
    """As os.execvpe, which imports a module: the container's user may not be allowed to read those of this Python."""
    if "/" in argv[0]:
        os.execve(argv[0], argv, env)  # noqa: S606 - deliberately without a shell
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for directory in env.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{directory}/{argv[0]}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error
    raise failure


def reason(error: OSError) -> str:
    """In the middle of a sentence."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]
