"""A real image without any package: a shell, some commands and a Python with its standard library, from the files of
this machine, under a root directory of its own."""

import functools
import gzip
import hashlib
import io
import os
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.images.builder import tar_of
from tests.support.node.images import is_left_out, shared_libraries
from trainwright.cluster.images.formats import (
    OCI_CONFIG,
    OCI_LAYER,
    OCI_LAYER_GZIP,
    ImageConfig,
    Manifest,
    Platform,
    RootFs,
    RunConfig,
)
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image, ImageStore

PYTHON = "/opt/python/bin/python3"
PATH = "/opt/python/bin:/bin"
MARK = "/etc/machine-image"
"""A file that this machine does not have."""

_COMMANDS = (
    "sh",
    "cat",
    "ls",
    "id",
    "env",
    "sleep",
    "pwd",
    "mkdir",
    "rm",
    "touch",
    "kill",
    "head",
    "stat",
    "uname",
    "tar",
)
_ACCOUNTS = "root:x:0:0:root:/root:/bin/sh\ntrainer:x:1234:2345:trainer:/home/trainer:/bin/sh\n"
_GROUPS = "root:x:0:\ntrainers:x:2345:\ngpu:x:44:trainer\n"


def add_machine_image(
    store: ImageStore,
    name: str = "machine",
    *,
    config: RunConfig | None = None,
    files: Mapping[str, bytes] | None = None,
    base: Path | None = None,
) -> Image:
    """Stores the image, with one more layer if there are `files`. `base` is another uncompressed layer in its place."""
    path = base or machine_layer()
    config = config or RunConfig()
    config.env = config.env or [f"PATH={PATH}", "LANG=C.UTF-8"]
    with store.lease():
        with path.open("rb") as source, store.writer() as writer:
            while chunk := source.read(1 << 20):
                writer.write(chunk)
            layers = [writer.commit(media_type=OCI_LAYER)]
        diff_ids = [layers[0].digest]
        if files:
            tar = tar_of(files)
            layers.append(store.write_blob(gzip.compress(tar, 1, mtime=0), OCI_LAYER_GZIP))
            diff_ids.append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
        platform = Platform.of_this_machine()
        document = ImageConfig(
            architecture=platform.architecture, os=platform.os, config=config, rootfs=RootFs(diff_ids=diff_ids)
        )
        manifest = Manifest.of_oci(store.write_blob(document.encode(), OCI_CONFIG), layers)
        return store.add_image(manifest, reference=ImageReference.parse(name))


@functools.cache
def machine_layer() -> Path:
    """An uncompressed layer, made once and kept for later runs of the tests."""
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "trainwright", "test-images")
    directory.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(f"3 {sys.version} {sys.executable}".encode()).hexdigest()[:12]
    path = directory / f"machine-{key}.tar"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        with tarfile.open(temporary, "w") as tar:
            _fill(tar)
        temporary.rename(path)
    return path


def _fill(tar: tarfile.TarFile) -> None:
    for directory in (
        "tmp",
        "root",
        "home/trainer",
        "proc",
        "sys",
        "dev",
        "etc",
        "run",
        "var",
        "bin",
        "opt/python/bin",
    ):
        _add(tar, directory, tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755)
    for name, text in (("etc/passwd", _ACCOUNTS), ("etc/group", _GROUPS), (MARK[1:], "machine image\n")):
        _add(tar, name, tarfile.REGTYPE, 0o644, content=text.encode())
    for name in ("python3", "python"):
        _add(tar, f"opt/python/bin/{name}", tarfile.SYMTYPE, 0o777, link=Path(sys.executable).resolve().name)
    for target, path in dict(_files()).items():
        real = path.resolve()
        _add(tar, target, tarfile.REGTYPE, real.stat().st_mode & 0o755 | 0o444, content=real.read_bytes())


def _files() -> Iterator[tuple[str, Path]]:
    binaries = [Path(found) for name in _COMMANDS if (found := shutil.which(name))]
    for path in binaries:
        yield f"bin/{path.name}", path
    interpreter, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    yield f"opt/python/bin/{interpreter.name}", interpreter
    modules = [path for path in library.rglob("*") if path.is_file() and not is_left_out(path, library)]
    for path in modules:
        yield f"opt/python/lib/{library.name}/{path.relative_to(library)}", path
    for path in shared_libraries([*binaries, interpreter, *(path for path in modules if path.suffix == ".so")]):
        # Those of an installation of Python are found by a path of this machine, else in /lib.
        own = path.is_relative_to(sys.base_prefix) and sys.base_prefix != "/usr"
        yield (f"lib/{path.name}" if own else str(path)[1:]), path


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, *, content: bytes = b"", link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(content), link
    tar.addfile(entry, io.BytesIO(content))
