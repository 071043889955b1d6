"""Tar archives that ADD unpacks."""

import bz2
import lzma
import os
import stat
import tarfile
from typing import Any, BinaryIO

from trainwright.cluster.images.build.files.copying import CopyJob
from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.layers.decompression import DecompressionError, decompress
from trainwright.cluster.images.layers.unpack import LayerError, unpack_layer

_GZIP, _ZSTD, _BZIP2, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00"
_COMPRESSED = ((_BZIP2, bz2.open), (_XZ, lzma.open))
"""What layers are never compressed with."""


def unpack_archives(job: CopyJob, directory: str) -> None:
    os.makedirs(directory, 0o755, exist_ok=True)
    for name, path in job.archives:
        unpack_archive(name, path, directory)


def unpack_archive(name: str, path: str, directory: str) -> None:
    """`name` is what users call the archive."""
    try:
        with open(path, "rb") as archive:
            unpack_layer(_opened(archive), directory)
    except (LayerError, OSError, EOFError, lzma.LZMAError) as error:
        raise BuildError(f"{name}: {error}") from error


def is_archive(path: str) -> bool:
    """True for a tar archive, compressed or not. A compressed file that is no archive is copied as it is."""
    try:
        with open(path, "rb") as file:
            start = file.read(512)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return False
            file.seek(0)
            return start[257:262] == b"ustar" or (start.startswith((_GZIP, _ZSTD, _BZIP2, _XZ)) and _has_archive(file))
    except OSError:
        return False


def _opened(file: BinaryIO) -> Any:
    """The file without the compressions that layers do not have."""
    start = file.read(8)
    file.seek(0)
    opener = next((opener for magic, opener in _COMPRESSED if start.startswith(magic)), None)
    return opener(file) if opener else file


def _has_archive(file: BinaryIO) -> bool:
    head = b""
    try:
        for chunk in decompress(_opened(file)):
            head += chunk
            if len(head) >= tarfile.BLOCKSIZE:
                break
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (DecompressionError, OSError, EOFError, lzma.LZMAError, tarfile.HeaderError):
        return False
    return True
