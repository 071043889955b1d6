"""What the process of a container may do: its user and groups, its capabilities, and that it cannot gain more; and
what the kernel does when its parent or its descendants end.

Standard library only.
"""

from __future__ import annotations

import ctypes
import os

from trainwright.cluster.linux.mounts import check, libc
from trainwright.cluster.linux.seccomp import filter_system_calls

TYPE_CHECKING = False  # importing typing takes four milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.linux.security_json import SecurityJson

CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
    "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
    "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
    "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
    "CHECKPOINT_RESTORE",
)  # fmt: skip
"""By number."""

CONTAINER_CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "SETGID", "SETUID", "SETFCAP", "SETPCAP", "NET_BIND_SERVICE",
    "SYS_CHROOT", "KILL", "AUDIT_WRITE",
)  # fmt: skip
"""Those of containerd's containers, but for MKNOD and NET_RAW: nothing here would keep new devices from being used, and
the network, whose packets could be read, is that of the machine."""

ADDABLE_CAPABILITIES = frozenset(
    {*CONTAINER_CAPABILITIES, "IPC_LOCK", "IPC_OWNER", "LEASE", "NET_BROADCAST", "SYS_NICE", "SYS_RESOURCE"}
)
"""Those that do not lead out of a container. With each of the others root could reach the files, processes, devices,
network or kernel of the machine, for example those of the supervisor, which is process 1 of the pod."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def hide_process() -> None:
    """For root: other processes need CAP_SYS_PTRACE to look into this one, for example by /proc/PID/root."""
    check(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "hide the process")


def restrict_process(security: SecurityJson, on_listener: Callable[[int], None] | None = None) -> None:
    """The last step before a program is executed. Keys that are missing change nothing: `capabilities` (names), `user`,
    `group`, `groups`, `noNewPrivileges`, `filtered` (system calls). `identified`: the ids are complete, they belong to
    an image. `on_listener` gets the descriptor that listens to the calls about socket addresses."""
    # First: it needs a capability, or no_new_privs.
    listener = filter_system_calls(refuse=bool(security.get("filtered")), notify=on_listener is not None)
    if listener is not None and on_listener is not None:
        on_listener(listener)
    kept = security.get("capabilities")
    mask = sum(1 << CAPABILITIES.index(name) for name in kept) if kept is not None else None
    if mask is not None:
        _limit_capabilities(mask)
    if security.get("identified"):
        _apply_ids(security["user"], security["group"], security["groups"])
    else:
        _set_ids(security.get("user"), security.get("group"), security.get("groups"))
    if mask is not None:
        _set_capabilities(mask & _permitted() if os.getuid() == 0 else 0)
    if security.get("noNewPrivileges"):
        check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "forbid new privileges")


def _set_ids(user: int | None, group: int | None, groups: list[int] | None) -> None:
    """A user without a group has that of the user database, or 0, as in containers."""
    if user is not None:
        import pwd  # most pods do not need it

        try:
            entry = pwd.getpwuid(user)
            known = (entry.pw_gid, os.getgrouplist(entry.pw_name, entry.pw_gid))
        except KeyError:
            known = (0, [])
        group = known[0] if group is None else group
        groups = [*known[1], *(groups or [])]
    _apply_ids(user, group, groups)


def _apply_ids(user: int | None, group: int | None, groups: list[int] | None) -> None:
    if groups is not None:
        os.setgroups(groups)
    if group is not None:
        os.setgid(group)
    if user is not None:
        os.setuid(user)


def _limit_capabilities(mask: int) -> None:
    """The bounding set: an executed program gets no others."""
    number = 0
    while (present := libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if present and not mask >> number & 1:
            check(libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), f"drop capability {number}")
        number += 1
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _permitted() -> int:
    header, sets = _Header(_CAPABILITY_VERSION, 0), (_Sets * 2)()
    check(libc.capget(ctypes.byref(header), sets), "read the capabilities")
    return int(sets[0].permitted) | int(sets[1].permitted) << 32


def _set_capabilities(mask: int) -> None:
    header, sets = _Header(_CAPABILITY_VERSION, 0), (_Sets * 2)()
    for index in (0, 1):
        sets[index].effective = sets[index].permitted = mask >> 32 * index & 0xFFFFFFFF
    check(libc.capset(ctypes.byref(header), sets), "set the capabilities")


def die_with_parent(signal_number: int) -> None:
    """The kernel forgets it when the process gets other ids or enters a user namespace."""
    check(libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "ask for a signal at the parent's end")


def become_subreaper() -> None:
    """Orphaned descendants become children of this process."""
    check(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "become the reaper of orphans")
