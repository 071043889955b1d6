"""The blobs of a store of images: named by the digest of their content, written whole or not at all.

Also the locks of the store. A lease, which several processes can have, keeps everything that is there; deleting needs
the lock for one process alone.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from trainwright.cluster.images.formats import LARGEST_DOCUMENT, Descriptor, digest_of
from trainwright.cluster.images.layers.namespace import remove_tree
from trainwright.cluster.images.reference import is_digest


class StoreError(Exception):
    """The store cannot do what was asked; one line that names the cause and, if there is one, the fix."""


class FullDiskError(StoreError):
    """The disk or the user's quota is full."""


class WrongDigestError(StoreError):
    """Content is not what its digest says."""


class DamagedImageError(StoreError):
    """A blob of a stored image is missing or is not what its digest says."""


class BlobStore:
    """The blobs in a directory, which is created when something is written."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def blob_path(self, digest: str) -> Path:
        if not is_digest(digest):
            raise StoreError(f"{digest[:80]!r} is not a digest")
        return self.directory / "blobs" / "sha256" / digest.partition(":")[2]

    def has_blob(self, digest: str, size: int | None = None) -> bool:
        try:
            found = self.blob_path(digest).stat().st_size
        except FileNotFoundError:
            return False
        return size is None or found == size

    def read_document(self, descriptor: Descriptor) -> bytes:
        """A manifest, index or configuration, verified."""
        path = self.blob_path(descriptor.digest)
        try:
            if path.stat().st_size > LARGEST_DOCUMENT:
                raise DamagedImageError(f"{descriptor.digest} is too large for a document of an image")
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DamagedImageError(f"{descriptor.digest} is missing in {self.directory}") from error
        except OSError as error:
            raise DamagedImageError(f"cannot read {path}: {error.strerror}") from error
        if digest_of(data) != descriptor.digest:
            raise DamagedImageError(f"{path} was changed: its content does not have its digest")
        return data

    @contextmanager
    def writer(self) -> "Iterator[BlobWriter]":
        """A blob of which nothing remains unless `commit` was called. Hold a lease until an image refers to it."""
        with self.lease(), BlobWriter(self) as writer:
            yield writer

    def write_blob(self, data: bytes, media_type: str = "", expected_digest: str | None = None) -> Descriptor:
        with self.writer() as writer:
            writer.write(data)
            return writer.commit(expected_digest, media_type=media_type)

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Keeps `collect`, also that of other processes, from deleting anything. Leases may be nested."""
        self._create()
        with lock_file(self.directory / "lock") as descriptor:
            if lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._remove_temporary_files()
            lock(descriptor, fcntl.LOCK_SH)
            if not (self.directory / "oci-layout").exists():
                self.replace_file(self.directory / "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            yield

    @contextmanager
    def exclusively(self) -> Iterator[bool]:
        """True if no lease is held: then nothing is in use during the block."""
        with lock_file(self.directory / "lock") as descriptor:
            is_alone = lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_alone:
                self._remove_temporary_files()
            yield is_alone

    def _create(self) -> None:
        try:
            # Other users must not read images, nor list the data directory, which may be created here.
            self.directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in ("", "blobs", "blobs/sha256", "tmp", "pins", "layers"):
                (self.directory / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise disk_error(self.directory, error) from error

    def _remove_temporary_files(self) -> None:
        """Only while no other process has a lease: then no process writes them."""
        for path in (self.directory / "tmp").glob("*"):
            if path.is_dir() and not path.is_symlink():
                remove_tree(path)
            else:
                path.unlink(missing_ok=True)

    def replace_file(self, path: Path, content: bytes) -> None:
        """Replaces a small file at once; needs a lease."""
        with BlobWriter(self) as writer:
            writer.write(content)
            writer.move_to(path)

    def reserve(self, path: Path, size: int) -> None:
        """Makes a file whose space `replace_file_from` can use when the disk is full. Without space there is none."""
        with suppress(OSError, StoreError):
            if not path.exists() or path.stat().st_size < size:
                self.replace_file(path, bytes(2 * size))

    def replace_file_from(self, reserve: Path, path: Path, content: bytes) -> None:
        """Replaces a small file at once, in space that was reserved for it; needs a lease."""
        try:
            with reserve.open("r+b") as file:
                file.write(content)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
            reserve.replace(path)
            _sync_directory(path.parent)
        except OSError as error:
            raise disk_error(self.directory, error) from error


class BlobWriter:
    """A blob that is being written, in a temporary file of the store, which is removed unless it is committed."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._hash = hashlib.sha256()
        self.size = 0
        name = f"blob-{os.getpid()}-{os.urandom(6).hex()}"
        self._path = store.directory / "tmp" / name
        try:
            self._file = self._path.open("xb", buffering=1 << 20)
        except OSError as error:
            raise disk_error(store.directory, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A file that is full of unwritten data fails to close on a full disk.
        with suppress(OSError):
            self._file.close()
        self._path.unlink(missing_ok=True)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise disk_error(self._store.directory, error) from error
        self._hash.update(data)
        self.size += len(data)

    def restart(self) -> None:
        """Forgets what was written."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()
        self.size = 0

    def flush(self) -> Path:
        """The file with what was written so far, which may be read until the end of the block."""
        try:
            self._file.flush()
        except OSError as error:
            raise disk_error(self._store.directory, error) from error
        return self._path

    @property
    def digest(self) -> str:
        """The digest of what was written so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def commit(self, expected_digest: str | None = None, *, media_type: str = "") -> Descriptor:
        """Makes it a blob of the store: complete and on the disk when this returns."""
        digest = self.digest
        if expected_digest is not None and digest != expected_digest:
            raise WrongDigestError(f"the content has digest {digest}, not {expected_digest}")
        self.move_to(self._store.blob_path(digest))
        return Descriptor(media_type=media_type, digest=digest, size=self.size)

    def move_to(self, target: Path) -> None:
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._path.replace(target)
            _sync_directory(target.parent)
        except OSError as error:
            raise disk_error(self._store.directory, error) from error


def is_full(error: OSError) -> bool:
    """True if the disk or the user's quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_error(directory: Path, error: OSError) -> StoreError:
    if is_full(error):
        return FullDiskError(f"no space left in {directory}: free some, for example with `trainwright image prune`")
    return StoreError(f"cannot write to {directory}: {error.strerror or error}")


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """A file to `lock`; its lock is released at the end of the block, or of the process."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise disk_error(path.parent, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock(descriptor: int, how: int) -> bool:
    """False if another process has the lock and `how` does not wait."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
