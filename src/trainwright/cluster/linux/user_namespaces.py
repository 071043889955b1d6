"""User namespaces: a process in which the caller keeps its own id, or in which it is root and has the ids of
/etc/subuid and /etc/subgid below it.

Standard library only.
"""

from __future__ import annotations

import os

from trainwright.cluster.linux.mounts import check, libc

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

CLONE_NEWUSER = 0x10000000
_PROGRAMS = {"uid": "newuidmap", "gid": "newgidmap"}
_PROGRAM_PATH = "/usr/bin:/bin:/usr/local/bin:/usr/sbin:/sbin"
_MAX_IDS = 65536


def enter_keeping_ids(flags: int = 0) -> None:
    """Creates a user namespace and those of `flags`. Programs see the same user as outside."""
    user, group = os.getuid(), os.getgid()
    check(libc.unshare(CLONE_NEWUSER | flags), "create namespaces")
    _write_maps(f"{user} {user} 1", f"{group} {group} 1")


def enter_as_root(flags: int = 0) -> bool:
    """Creates a user namespace and those of `flags`, in which the caller is root; True if it has other ids too.

    The ids 1 to 65535 are the subordinate ones of the user where there are some and newuidmap is installed. Otherwise
    root is the only one: files have no other owners.
    """
    user, group = os.getuid(), os.getgid()
    ranges = {kind: subordinate_ids(kind, user) for kind in _PROGRAMS}
    if not has_subordinate_ids(user):
        check(libc.unshare(CLONE_NEWUSER | flags), "create namespaces")
        _write_maps(f"0 {user} 1", f"0 {group} 1")
        return False
    caller = os.getpid()
    # setuid programs write the map, from outside of the namespace.
    finish = _helper(
        lambda: all(
            _run(
                _find_program(_PROGRAMS[kind]),
                [str(number) for number in (caller, 0, own, 1, 1, *(ranges[kind] or (0, 0)))],
            )
            for kind, own in (("uid", user), ("gid", group))
        )
    )
    check(libc.unshare(CLONE_NEWUSER | flags), "create namespaces")
    if finish():
        return True
    for name, line in (("uid_map", f"0 {user} 1"), ("setgroups", "deny"), ("gid_map", f"0 {group} 1")):
        try:
            _write(name, line)
        except OSError:
            pass  # one of the two programs has written it
    return False


def has_subordinate_ids(user: int) -> bool:
    """True if the user has some, and the programs that map them are installed."""
    return all(_find_program(program) and subordinate_ids(kind, user) for kind, program in _PROGRAMS.items())


def subordinate_ids(kind: str, user: int) -> tuple[int, int] | None:
    """First id and number of those that `/etc/subuid` or `/etc/subgid` gives the user; None without any."""
    names = {str(user), _user_name(user)}
    try:
        with open(f"/etc/sub{kind}", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, rest = line.strip().partition(":")
                first, _, count = rest.partition(":")
                if name in names and first.isdecimal() and count.isdecimal() and int(count) > 0:
                    return int(first), min(int(count), _MAX_IDS)
    except OSError:
        pass
    return None


def _user_name(user: int) -> str:
    import pwd  # most pods do not need it

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _find_program(name: str) -> str:
    for directory in _PROGRAM_PATH.split(":"):
        if os.access(f"{directory}/{name}", os.X_OK):
            return f"{directory}/{name}"
    return ""


def _helper(step: Callable[[], bool]) -> Callable[[], bool]:
    """A child that stays outside of the namespace; the result lets it do its step, and tells whether that worked."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(writer)
            if os.read(reader, 1):
                status = 0 if step() else 1
        finally:
            os._exit(status)
    os.close(reader)

    def finish() -> bool:
        os.write(writer, b"1")
        os.close(writer)
        return os.waitpid(child, 0)[1] == 0

    return finish


def _run(program: str, arguments: list[str]) -> bool:
    silent = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(program, [program, *arguments], os.environ, file_actions=silent)
    return os.waitpid(child, 0)[1] == 0


def _write_maps(users: str, groups: str) -> None:
    for name, line in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        _write(name, line)


def _write(name: str, line: str) -> None:
    with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
        file.write(line)
