"""How agent and supervisor speak to each other: by small files, each whole or not at all, and a word that there is one.

Standard library only.
"""

from __future__ import annotations

import errno
import json
import os

TYPE_CHECKING = False  # typing itself would cost every pod four milliseconds
if TYPE_CHECKING:
    from typing import Any

_REQUIRED: Any = object()

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk answers: a reason to wait, none to end a pod."""


def read_json(path: str, default: Any = _REQUIRED) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        if default is _REQUIRED:
            raise
        return default


def write_json(path: str, value: dict[str, Any], *, durable: bool = True) -> None:
    """`durable`: on the disk on return. What means nothing after a loss of power need not be, and is quicker so."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(value, file)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def own_identity() -> dict[str, Any]:
    """By what the agent finds this process again: its number, and since when it has it."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        text = file.read()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return {"pid": os.getpid(), "startTicks": int(text[text.rindex(")") + 2 :].split()[19]), "bootId": boot}


def poke(node_directory: str, uid: str) -> bool:
    """Tells the agent to look at the pod; False if so many others do at this moment that it has to be told again.

    If nobody listens, the agent will look when it comes back.
    """
    import socket  # late: by now the pod's first container runs

    # The directory's descriptor, because the path of a socket may not be longer than 107 characters.
    node = os.open(node_directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as agent:
            agent.sendto(uid.encode(), f"/proc/self/fd/{node}/agent.sock")
    except BlockingIOError:  # the kernel keeps but ten such messages by default
        return False
    except OSError:
        pass
    finally:
        os.close(node)
    return True


def remove_tree(path: str) -> None:
    """Removes a directory of a pod as far as possible; what an overlay worked in has no permissions at all."""
    for parent, directories, _ in os.walk(path):
        for name in directories:
            _try(lambda inner: None if os.path.islink(inner) else os.chmod(inner, 0o700), os.path.join(parent, name))
    for parent, directories, names in os.walk(path, topdown=False):
        for name in names:
            _try(os.unlink, os.path.join(parent, name))
        for name in directories:
            inner = os.path.join(parent, name)
            _try(os.unlink if os.path.islink(inner) else os.rmdir, inner)
    _try(os.rmdir, path)


def _try(change: Any, path: str) -> None:
    try:
        change(path)
    except OSError:
        pass  # a file of another user in a volume, or gone meanwhile; the rest goes all the same
