"""Work on the files of images as the root of containers: an ordinary user does it in a user namespace, in which files
have owners and whiteouts can be made."""

import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from trainwright.cluster.linux import trees
from trainwright.cluster.linux.privileges import die_with_parent
from trainwright.cluster.linux.user_namespaces import enter_as_root

T = TypeVar("T")


class ContainerRootError(Exception):
    """This machine does not let an ordinary user be the root of a container; the message names the cause and the
    fix."""


def run_as_container_root(function: Callable[[], T]) -> T:
    """Calls the function, for an ordinary user in a child process that is root in a user namespace.

    Result and exception of the function are passed on, so both must be picklable. Descriptors are shared; memory that
    the function changes is not.
    """
    if os.geteuid() == 0:
        return function()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _report(writer, function)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if not answer:
        raise ContainerRootError(f"the process that works as root of containers ended with status {status}")
    result, error = pickle.loads(answer)  # noqa: S301 - written by a fork of this process
    if error is not None:
        raise error
    found: T = result
    return found


def _report(writer: int, function: Callable[[], object]) -> None:
    """In the child: never returns."""
    answer: tuple[object, BaseException | None]
    try:
        try:
            enter_as_root()
            die_with_parent(signal.SIGKILL)  # else a build would go on after its command was killed
        except OSError as error:
            text = (
                f"{error.strerror}. Allow unprivileged user namespaces (on Ubuntu: sysctl "
                "kernel.apparmor_restrict_unprivileged_userns=0), or run as root"
            )
            answer = (None, ContainerRootError(text))
        else:
            answer = (function(), None)
    except BaseException as error:
        answer = (None, error)
    try:
        try:
            data = pickle.dumps(answer)
            pickle.loads(data)  # noqa: S301 - some exceptions cannot be made again
        except Exception:
            data = pickle.dumps((None, RuntimeError(f"{type(answer[1] or answer[0]).__name__}: {answer[1]}")))
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
    finally:
        os._exit(0)


def remove_tree(path: Path) -> None:
    """Removes a directory with files of containers, whatever their owners and modes. What cannot be removed stays."""
    trees.remove_tree(str(path))
    if path.exists() and os.geteuid() != 0:
        try:
            run_as_container_root(lambda: trees.remove_tree(str(path)))
        except ContainerRootError:
            pass  # no file can have another owner either
