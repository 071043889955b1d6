"""The data directory of an embedded cluster: its layout, its lock and the record of the running process.

A restart needs nothing outside of it, and one process at a time owns it.
"""

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from trainwright.atomic_files import write_atomically
from trainwright.cluster.address_range import AddressRange, parse_range
from trainwright.cluster.node_settings import NodeSettings
from trainwright.cluster.owned_paths import (
    UntrustedPathError,
    check_directory,
    check_private_files,
    is_open_to_others,
    open_private_directory,
)
from trainwright.cluster.process_identity import ProcessIdentity, identify

FORMAT = 1
"""The format that this version writes; it changes when older versions could no longer read the directory."""

CONTEXT = "trainwright"
"""The name of the cluster's context in its own kubeconfig."""
_NAMED = "trainwright-"


class ClusterError(Exception):
    """The cluster cannot be started or stopped; one line that names the cause and the fix."""


class DataDirError(ClusterError):
    """The data directory cannot be used; one line that names the file, the cause and the fix."""


class AlreadyRunningError(DataDirError):
    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(
            f"already running (pid {pid or 'unknown'}), data directory {path}; "
            "`trainwright status` shows it, another cluster needs --cluster NAME"
        )
        self.pid = pid


class ClusterRecord(NodeSettings, frozen=True, rename="camel", kw_only=True):
    """`cluster.json`: the process that runs the cluster, for other commands, and the settings of its node that are in
    force; it exists while the cluster is ready."""

    pid: int
    start_ticks: int
    boot_id: str
    server: str
    version: str
    kubeconfig: str
    context: str = CONTEXT
    """The name of its context in the user's kubeconfig."""
    ephemeral: bool = False
    """Its data is deleted when it stops."""
    addresses: str = ""
    """The range of its pods and Services."""

    @property
    def process(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.start_ticks, self.boot_id)


@dataclass(frozen=True, slots=True)
class RememberedPort:
    number: int
    requested: bool
    """True if the user chose it with --port: then no other port is tried."""


@dataclass(frozen=True)
class DataDir:
    """A data directory by its path. Only `create` and `lock` create files."""

    path: Path

    @classmethod
    def default(cls, environment: dict[str, str] | None = None) -> Self:
        """`$XDG_DATA_HOME/trainwright`; a relative XDG_DATA_HOME is ignored, as the XDG specification requires."""
        configured = Path((os.environ if environment is None else environment).get("XDG_DATA_HOME", ""))
        base = configured if configured.is_absolute() else Path.home() / ".local" / "share"
        return cls(base / "trainwright")

    @classmethod
    def of_cluster(cls, name: str) -> Self:
        """The directory of the cluster `--cluster NAME`, beside the default one."""
        return cls(cls.default().path.with_name(_NAMED + name))

    @classmethod
    def all_named(cls) -> list[Self]:
        """The default one and those of named clusters that exist."""
        default = cls.default()
        named = sorted(path for path in default.path.parent.glob(f"{_NAMED}*") if (path / "format").exists())
        return [default, *(cls(path) for path in named)]

    @property
    def cluster_name(self) -> str:
        """The NAME of `--cluster NAME`; empty for the default directory and those of --data-dir."""
        is_named = self.path.parent == self.default().path.parent and self.path.name.startswith(_NAMED)
        return self.path.name.removeprefix(_NAMED) if is_named else ""

    @property
    def store(self) -> Path:
        return self.path / "store.db"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def credential(self) -> Path:
        """The token as an ExecCredential, for kubeconfigs that pods can read."""
        return self.path / "credential.json"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def service_account_key(self) -> Path:
        return self.path / "sa.key"

    @property
    def node(self) -> Path:
        return self.path / "node"

    @property
    def volumes(self) -> Path:
        return self.path / "volumes"

    @property
    def log(self) -> Path:
        return self.path / "cluster.log"

    @property
    def is_ephemeral(self) -> bool:
        """True if its cluster was to delete it; a process that was killed could not."""
        return self._ephemeral.exists()

    def mark_ephemeral(self) -> None:
        self._ephemeral.touch()

    @property
    def _ephemeral(self) -> Path:
        return self.path / "ephemeral"

    def create(self) -> None:
        """Creates the directory, or checks that this version can use it and that no other user can."""
        try:
            descriptor = open_private_directory(self.path)
            try:
                is_ours = self._check_ownership()
                if is_ours and is_open_to_others(os.fstat(descriptor)):
                    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                    raise DataDirError(
                        f"data directory {self.path} has mode {mode:04o}: another user may have put files into it; "
                        f"check them and run `chmod 0700 {self.path}`, or choose another with --data-dir"
                    )
                # Other users must not list it: it holds a token and the files of jobs.
                os.fchmod(descriptor, 0o700)
                check_private_files(descriptor, self.path)
                self._check_keys()
            finally:
                os.close(descriptor)
        except UntrustedPathError as error:
            raise DataDirError(f"data directory {self.path} cannot be trusted: {error}") from error
        except OSError as error:
            if isinstance(error, NotADirectoryError) and error.filename == str(self.path):
                text = f"{self.path} is not a directory: move it away or choose another --data-dir"
                raise DataDirError(text) from error
            raise DataDirError(
                f"cannot use data directory {self.path}: {error.strerror}; choose another with --data-dir"
            ) from error
        self._check_format()
        for directory in (self.node, self.volumes):
            directory.mkdir(exist_ok=True, mode=0o700)

    def check(self) -> None:
        """Raises DataDirError if another user could have written its files, such as the kubeconfig."""
        try:
            check_directory(self.path)
        except UntrustedPathError as error:
            raise DataDirError(f"data directory {self.path} cannot be trusted: {error}") from error
        except OSError as error:
            raise DataDirError(f"cannot use data directory {self.path}: {error.strerror}") from error

    @property
    def is_trusted(self) -> bool:
        try:
            self.check()
        except DataDirError:
            return False
        return True

    def _check_keys(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self.pki, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                check_private_files(descriptor, self.pki)
            finally:
                os.close(descriptor)

    def _check_ownership(self) -> bool:
        """True for a data directory, False for an empty one.

        Refuses a directory with other files, for example a home directory: its mode and content stay as they are.
        """
        # A killed start may have left a temporary `format`; images may come before the first start.
        other_files = [
            path for path in self.path.iterdir() if not path.name.startswith(".format.") and path.name != "images"
        ]
        is_data_directory = (self.path / "format").exists()  # looked for last: another start may write it meanwhile
        if other_files and not is_data_directory:
            raise DataDirError(
                f"{self.path} is not empty and not a data directory of trainwright (it has {other_files[0].name}, "
                "but no `format`): choose another --data-dir"
            )
        return is_data_directory

    def _check_format(self) -> None:
        path = self.path / "format"
        try:
            text = path.read_text().strip()
        except FileNotFoundError:
            write_atomically(path, f"{FORMAT}\n".encode())
            return
        if not text.isdecimal():
            raise DataDirError(
                f"{path} says {text[:40]!r}, not a number: it was not written by trainwright; "
                "choose another --data-dir, or delete the directory with its cluster"
            )
        if int(text) > FORMAT:
            raise DataDirError(
                f"{path} says {text}, this trainwright reads up to {FORMAT}: the directory was written by a newer "
                "version; use that one, or choose another --data-dir"
            )

    def lock(self) -> "DataDirLock":
        """Makes this process the owner until the lock is released or the process ends in any way."""
        path = self.path / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise AlreadyRunningError(self.path, self._lock_pid()) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._remove_unfinished_files()
        return DataDirLock(path, descriptor)

    def _remove_unfinished_files(self) -> None:
        """Removes what `write_atomically` left in a process that was killed; `format` is written without the lock."""
        for directory in (self.path, self.pki):
            for path in directory.glob(".*.????????"):
                if not path.name.startswith(".format."):
                    path.unlink(missing_ok=True)

    def owner(self) -> ProcessIdentity | None:
        """The process that has the lock now, even if it is still starting."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = self._lock_pid()
            return identify(pid) if pid else None
        finally:
            os.close(descriptor)
        return None

    def _lock_pid(self) -> int | None:
        """The pid in the lock file; valid only while the lock is held."""
        text = _read_text(self.path / "lock") or ""
        return int(text) if text.strip().isdecimal() else None

    def token(self) -> str:
        """The bearer token of clients; created once and kept, so that kubeconfigs stay valid."""
        token = self._secret(self.path / "token")
        credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
        content = msgspec.json.encode(credential | {"status": {"token": token}})
        if _read_text(self.credential) != content.decode():
            write_atomically(self.credential, content)
        return token

    def session_secret(self) -> bytes:
        """The secret of the keys with which the node opens sessions in pods; kept, because pods outlive the cluster."""
        return self._secret(self.path / "sessions.key").encode()

    def _secret(self, path: Path) -> str:
        found = (_read_text(path) or "").strip()
        if len(found) < 32:
            found = secrets.token_urlsafe(32)
            write_atomically(path, found.encode())
        return found

    def remembered_port(self) -> RememberedPort | None:
        """The port of the last start, so that kubeconfigs stay valid."""
        number, _, suffix = (_read_text(self.path / "port") or "").strip().partition(" ")
        if not number.isdecimal() or not 0 < int(number) < 65536:
            return None
        return RememberedPort(int(number), requested=suffix == "asked for")

    def remember_port(self, port: RememberedPort) -> None:
        write_atomically(self.path / "port", f"{port.number}{' asked for' if port.requested else ''}\n".encode())

    def remembered_addresses(self) -> AddressRange | None:
        """The range of the last start, so that Services keep their addresses."""
        return parse_range((_read_text(self.path / "addresses") or "").strip())

    def remember_addresses(self, addresses: AddressRange) -> None:
        write_atomically(self.path / "addresses", f"{addresses}\n".encode())

    def nfs_mappings(self) -> dict[str, str]:
        """Directories in place of NFS exports (`SERVER:/PATH`), as remembered."""
        try:
            return msgspec.json.decode(_read_text(self.path / "nfs-mappings.json") or "{}", type=dict[str, str])
        except msgspec.MsgspecError:
            return {}

    def remember_nfs_mappings(self, mappings: Mapping[str, str]) -> None:
        write_atomically(self.path / "nfs-mappings.json", msgspec.json.encode(dict(mappings)) + b"\n")

    def write_record(self, record: ClusterRecord) -> None:
        write_atomically(self.path / "cluster.json", msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")

    def remove_record(self, record: ClusterRecord) -> None:
        """Removes this record; the record of a later process stays."""
        running = self.running()
        if running is None or running == record:
            (self.path / "cluster.json").unlink(missing_ok=True)

    def running(self) -> ClusterRecord | None:
        """The record of the running cluster; None if its process has ended or the file is broken."""
        text = _read_text(self.path / "cluster.json")
        try:
            record = msgspec.json.decode(text or "", type=ClusterRecord)
        except msgspec.DecodeError:
            return None
        return record if record.process.alive else None


@dataclass
class DataDirLock:
    """Held by an open file: the kernel releases it when the process ends in any way."""

    path: Path
    descriptor: int

    @property
    def is_removed(self) -> bool:
        """True if the lock file was removed: no command finds this process, and another one may own the directory."""
        try:
            return not os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except FileNotFoundError:
            return True

    def release(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def this_process() -> ProcessIdentity:
    found = identify(os.getpid())
    if found is None:
        raise DataDirError("/proc does not show this process: the embedded cluster needs Linux with /proc mounted")
    return found


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
