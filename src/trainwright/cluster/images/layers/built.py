"""Layers that builds of this machine have made. The store keeps their files alone, not the tar stream.

The stream is made again of the files and of the record of `tar_split` when an image is saved or pushed, and its digest
is compared: files that were changed meanwhile never leave this machine. Registries get it compressed with gzip.
"""

import contextlib
import hashlib
import os
import struct
import subprocess
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Literal

import msgspec

from trainwright.cluster.images.blobs import DamagedImageError, StoreError
from trainwright.cluster.images.formats import OCI_LAYER, Descriptor
from trainwright.cluster.images.layers.namespace import ContainerRootError, run_as_container_root
from trainwright.cluster.images.layers.pack import pack_layer
from trainwright.cluster.images.layers.tar_split import Output, TarSplitError, read_tar
from trainwright.cluster.images.store import ImageStore
from trainwright.cluster.linux.mounts import check, libc
from trainwright.programs import own_module

_CHUNK = 1 << 20
"""Compressed at a time; a part of the result, because it decides where the blocks of the stream end."""
_DICTIONARY = 32 << 10
_LEVEL = 1
"""Level 1 takes a third of the time of level 6 and makes system files 12 % larger."""
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"


class GzipStream:
    """Compresses on all processors into one gzip member, as pigz does: each chunk knows the end of the one before it.

    The bytes depend on the input alone, not on the number of processors.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._crc = 0
        self.size = 0
        self._buffer = bytearray()
        self._previous = b""
        workers = max(1, min(8, len(os.sched_getaffinity(0))))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="gzip")
        self._pending: deque[Future[bytes]] = deque()
        self._most = 2 * workers

    def __enter__(self) -> "GzipStream":
        self._output.write(_GZIP_HEADER)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._submit(last=True)
                while self._pending:
                    self._output.write(self._pending.popleft().result())
                self._output.write(struct.pack("<LL", self._crc, self.size & 0xFFFFFFFF))
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def write(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _CHUNK:
            self._submit(last=False)

    def _submit(self, *, last: bool) -> None:
        chunk = bytes(self._buffer[:_CHUNK])
        del self._buffer[:_CHUNK]
        self._crc = zlib.crc32(chunk, self._crc)
        self.size += len(chunk)
        self._pending.append(self._pool.submit(_compress, chunk, self._previous, last))
        self._previous = chunk[-_DICTIONARY:]
        while len(self._pending) > self._most:
            self._output.write(self._pending.popleft().result())


def _compress(chunk: bytes, dictionary: bytes, last: bool) -> bytes:
    compressor = (
        zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, zdict=dictionary)
        if dictionary
        else zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
    )
    return compressor.compress(chunk) + compressor.flush(zlib.Z_FINISH if last else zlib.Z_SYNC_FLUSH)


PROGRAM = "trainwright.cluster.images.layers.built"
"""The module to run in a process of its own, see `main`."""


class BuiltLayers:
    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self._has_new = False

    def add(self, directory: str) -> Descriptor:
        """Moves the files into the store. As the root of containers, with a lease of the store."""
        with self._store.writer() as writer:
            packed = pack_layer(directory, writer)
            writer.move_to(self._store.layer_record(packed.diff_id))
        os.chmod(directory, 0o755)  # noqa: S103 - the root directory of images
        target = self._store.layer_path(packed.diff_id)
        try:
            if not target.is_dir():
                os.rename(directory, target)
        except OSError:
            if not target.is_dir():  # another build has made the same layer meanwhile
                raise
        self._has_new = True
        return Descriptor(media_type=OCI_LAYER, digest=packed.diff_id, size=packed.size)

    def sync(self) -> None:
        """Returns when the files that were added are on the disk, so that an image may name them."""
        if self._has_new:
            descriptor = os.open(self._store.layers, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                check(libc.syncfs(descriptor), f"write {self._store.layers} to the disk")
            finally:
                os.close(descriptor)
            self._has_new = False

    def compressed(self, layer: Descriptor) -> Descriptor | None:
        """As a registry got it from this machine; None if none did."""
        try:
            return msgspec.json.decode(self._compressed_path(layer).read_bytes(), type=Descriptor)
        except (OSError, msgspec.MsgspecError):
            return None

    def remember_compressed(self, layer: Descriptor, compressed: Descriptor) -> None:
        self._store.replace_file(self._compressed_path(layer), msgspec.json.encode(compressed))

    def _compressed_path(self, layer: Descriptor) -> Path:
        return self._store.layer_path(layer.digest).with_suffix(".gzip")

    @contextlib.contextmanager
    def open(self, layer: Descriptor) -> Iterator[IO[bytes]]:
        """The tar stream, which ends too early if the files were changed. Raises DamagedImageError at the end."""
        command = stream_command(self._store, layer, "tar")
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None  # noqa: S101 (for the type checker)
            assert process.stderr is not None  # noqa: S101 (for the type checker)
            try:
                yield process.stdout
            finally:
                process.stdout.close()
                message = process.stderr.read()
                if process.wait():
                    raise damaged_layer(self._store, layer, message)


def stream_command(store: ImageStore, layer: Descriptor, form: Literal["tar", "gzip"]) -> list[str]:
    """The command that writes the layer to standard output, or why it cannot to standard error.

    A process of its own: an ordinary user enters a user namespace for it, and it takes seconds.
    """
    return own_module(PROGRAM, str(store.directory), layer.digest, form)


def damaged_layer(store: ImageStore, layer: Descriptor, message: bytes) -> DamagedImageError:
    """Names all images that have the layer: as long as one of them is there, a build finds the changed files again."""
    lines = message.decode(errors="replace").strip().splitlines()
    cause = lines[-1] if lines else "the process that reads its files ended"
    names = [
        image.reference.familiar if image.reference else image.short_id
        for image in store.images()
        if layer.digest in image.config.rootfs.diff_ids
    ]
    return DamagedImageError(
        f"layer {layer.digest} cannot be read: {cause}. "
        f"Remove the images that have it ({', '.join(names)}), and build them again"
    )


def main(arguments: Sequence[str]) -> None:
    directory, digest, form = arguments
    store = ImageStore(Path(directory))
    try:
        with store.lease():
            run_as_container_root(lambda: _write_layer(store, digest, compress=form == "gzip"))
    except BrokenPipeError:
        pass  # the reader has enough
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename}" if error.filename else str(error.strerror or error))
    except (TarSplitError, ContainerRootError, StoreError) as error:
        sys.exit(str(error))


def _write_layer(store: ImageStore, digest: str, *, compress: bool) -> None:
    files = str(store.layer_path(digest))
    # Not standard output's own buffer: this may be a fork, and leaves without its end.
    with open(1, "wb", closefd=False) as output, open(store.layer_record(digest), "rb") as record:
        target: contextlib.AbstractContextManager[Output] = (
            GzipStream(output) if compress else contextlib.nullcontext(output)
        )
        with target as stream:
            for piece in _verified(read_tar(record, files), digest, files):
                stream.write(piece)


def _verified(pieces: Iterable[bytes], digest: str, files: str) -> Iterator[bytes]:
    """The last piece follows only if the digest is right, so that no reader takes a changed stream for a whole one."""
    last = b""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
        yield last
        last = piece
    if f"sha256:{found.hexdigest()}" != digest:
        raise TarSplitError(f"its files in {files} were changed")
    yield last


if __name__ == "__main__":
    main(sys.argv[1:])
