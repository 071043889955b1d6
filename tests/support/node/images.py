"""Small images from the files of this machine, as archives that `ctr image import` reads."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "__pycache__",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def pause_image(name: str, pause: Path, archive: Path) -> None:
    files = [("pause", pause)]
    _write_image(name, archive, files=files, links={}, config={"Entrypoint": ["/pause"]})


def host_image(name: str, archive: Path) -> None:
    """`sh` and the usual commands from the static busybox, `python3` with the standard library of this Python."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise RuntimeError("no busybox: run tools/build-node")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    links = {f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"}
    files = [("bin/busybox", Path(busybox)), *_python_files()]
    links |= {"usr/local/bin/python3": os.path.realpath(sys.executable)}
    passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
    texts = {"etc/passwd": passwd, "etc/group": "root:x:0:\nnogroup:x:65534:\n"}
    config = {"Env": [f"PATH={_PATH}", "LANG=C.UTF-8"], "Cmd": ["sh"]}
    _write_image(name, archive, files=files, links=links, texts=texts, config=config)


def _python_files() -> Iterator[tuple[str, Path]]:
    """The interpreter where it is on this machine, so that it finds its library, and the shared libraries of both."""
    interpreter = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_path("stdlib"))
    found = [interpreter, *(path for path in library.rglob("*") if path.is_file() and not is_left_out(path, library))]
    for path in found:
        yield str(path).lstrip("/"), path
    for path in shared_libraries([interpreter, *(path for path in found if path.suffix == ".so")]):
        yield str(path).lstrip("/"), path


def is_left_out(path: Path, library: Path) -> bool:
    parts = path.relative_to(library).parts
    return any(part in _LEFT_OUT or part.startswith("config-") for part in parts[:-1]) or path.suffix in {".a", ".pyc"}


def shared_libraries(binaries: Iterable[Path]) -> set[Path]:
    output = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", output, re.MULTILINE)}


def _write_image(
    name: str,
    archive: Path,
    *,
    files: Iterable[tuple[str, Path]],
    links: dict[str, str],
    config: Mapping[str, object],
    texts: dict[str, str] | None = None,
) -> None:
    """A docker-archive with one layer."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        for directory in ("tmp", "root", "proc", "sys", "dev", "etc", "run", "var", "usr", "usr/bin"):
            entry = tarfile.TarInfo(directory)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory == "tmp" else 0o755
            tar.addfile(entry)
        for target, path in files:
            _add_file(tar, target, path)
        for target, destination in links.items():
            entry = tarfile.TarInfo(target)
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, destination, 0o777
            tar.addfile(entry)
        for target, text in (texts or {}).items():
            entry = tarfile.TarInfo(target)
            entry.size, entry.mode = len(text.encode()), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    with layer.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    document = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        tar.add(layer, "layer.tar")
        for file, content in (("config.json", document), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    layer.unlink()


def _add_file(tar: tarfile.TarFile, target: str, path: Path) -> None:
    """The content, also of a link, owned by root."""
    real = path.resolve()
    entry = tarfile.TarInfo(target)
    entry.size, entry.mode = real.stat().st_size, real.stat().st_mode & 0o755 | 0o444
    with real.open("rb") as content:
        tar.addfile(entry, content)
