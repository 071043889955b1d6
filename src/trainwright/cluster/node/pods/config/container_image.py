"""The image of a container as the node runs it: its layers, and what it says about the program. Pure."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.node_annotations import HOST_IMAGE

_NO_USER = 2**32 - 1
"""Numbers of users are smaller."""


class ContainerError(PodConfigError):
    """The container cannot be created, whatever else the pod has."""


DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of images that define none, as in containerd."""


@dataclass(frozen=True, slots=True)
class User:
    """An entry of /etc/passwd."""

    name: str
    uid: int
    gid: int
    home: str = "/"


@dataclass(frozen=True, slots=True)
class Accounts:
    """/etc/passwd and /etc/group of an image."""

    users: tuple[User, ...] = ()
    groups: tuple[tuple[str, int, frozenset[str]], ...] = ()
    """Name, number and names of the members."""

    @classmethod
    def parse(cls, passwd: str, group: str) -> "Accounts":
        """Lines that are no entries are left out."""
        users = [
            User(fields[0], uid, gid, fields[5] or "/")
            for fields in (line.split(":") for line in passwd.splitlines())
            if len(fields) >= 6
            and (uid := parse_decimal(fields[2])) is not None
            and (gid := parse_decimal(fields[3])) is not None
        ]
        groups = [
            (fields[0], gid, frozenset(filter(None, fields[3].split(","))))
            for fields in (line.split(":") for line in group.splitlines())
            if len(fields) >= 4 and (gid := parse_decimal(fields[2])) is not None
        ]
        return cls(tuple(users), tuple(groups))

    def find(self, text: str) -> User | None:
        """By name, else by number."""
        by_name = next((user for user in self.users if user.name == text), None)
        number = parse_decimal(text)
        if by_name is not None or number is None:
            return by_name
        return next((user for user in self.users if user.uid == number), None)

    def groups_of(self, name: str) -> list[int]:
        return [number for _, number, members in self.groups if name in members]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerImage:
    """By default the files of this machine."""

    image_id: str = ""
    """`NAME@sha256:…`; empty for the files of this machine."""
    layers: tuple[str, ...] = ()
    """Directories, the topmost first."""
    host_files: bool = True
    """True if the layers lie over the files of this machine."""
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    user: str = ""
    """USER of the Dockerfile: `name`, `1000`, `name:group`."""
    accounts: Accounts = field(default_factory=Accounts)
    volumes: tuple[str, ...] = ()
    stop_signal: int = signal.SIGTERM
    library_directory: str = "/usr/lib"
    """Where the dynamic linker of the image looks for libraries."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """At sandbox plain: path in the image -> path of a copy on this machine."""
    covers_home: bool = False
    """True if a layer over the files of this machine has files in the user's home, which is then not shared."""
    python: str | None = None
    """The Python that the name is mapped to, on the files of this machine."""
    unknown: bool = False
    """True if no image of this name was found."""
    pulled: bool = False
    """True if it was pulled for this pod."""
    pod_mounts: Mapping[str, str] = field(default_factory=dict)
    """What all containers of the pod need if one has this image: path in them -> directory of this machine."""

    @property
    def has_own_files(self) -> bool:
        return not self.host_files


def arguments_of(spec: Object, image: ContainerImage) -> tuple[list[str], list[str]]:
    """Program and arguments, by Kubernetes' rules: `command` replaces ENTRYPOINT and CMD, `args` replaces CMD.

    Those of the image are literal: only those of the manifest may refer to variables. The first list is of the image,
    the second of the manifest; together they are never empty.
    """
    command, args = list(spec.get("command") or []), list(spec.get("args") or [])
    if command:
        return [], [*command, *args]
    found = (list(image.entrypoint), args) if args else ([*image.entrypoint, *image.command], [])
    if not any(found):
        raise ContainerError("no command specified")
    return found


def is_host_image(image: str) -> bool:
    name = image.partition("@")[0]
    return name == HOST_IMAGE or name.startswith(f"{HOST_IMAGE}:")


def has_command(spec: Object, image: ContainerImage) -> bool:
    return bool(spec.get("command") or image.entrypoint or spec.get("args") or image.command)


def parse_environment(entries: list[str]) -> dict[str, str]:
    """ENV of an image: `NAME=value`."""
    pairs = (entry.partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}


def parse_stop_signal(text: str) -> int:
    """`SIGINT`, `INT` or `2`; SIGTERM for what is none."""
    name = text.strip().upper()
    if (number := parse_decimal(name)) is not None:
        return number if 0 < number < signal.NSIG else signal.SIGTERM
    found = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", signal.SIGTERM)
    return int(found) if isinstance(found, signal.Signals) else signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Identity:
    """The user and groups with which the program of a container runs."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def identity_of(image: ContainerImage, *, run_as_user: int | None, run_as_group: int | None) -> Identity:
    """As the kubelet and containerd find it: runAsUser or USER, looked up in the image; a group in USER does not count.

    Raises ContainerError for an unknown name.
    """
    name = image.user.partition(":")[0] if run_as_user is None else str(run_as_user)
    known = image.accounts.find(name or "0")
    number = parse_decimal(name or "0")
    if known is None and (number is None or number >= _NO_USER):
        raise ContainerError(f"unable to find user {name[:100]}: no matching entries in passwd file")
    uid = known.uid if known else number or 0
    gid = run_as_group if run_as_group is not None else known.gid if known else 0
    groups = image.accounts.groups_of(known.name) if known else []
    return Identity(uid, gid, tuple(dict.fromkeys([gid, *groups])), known.home if known else "/")
