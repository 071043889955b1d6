"""A copy of this Python that runs one program on any root file system: also in images without Python or another libc.

It has the dynamic linker, the libraries and the modules that the program uses, and nothing else. It can be mounted at
any path.
"""

import hashlib
import py_compile
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path

_LINKER = "lib/ld.so"
_FIND = """
import os, sys
import {modules}
modules = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
import ctypes
class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
libraries = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
def add(loaded, size, data):
    libraries.append(os.fsdecode(loaded.contents.name))
    return 0
ctypes.CDLL(None).dl_iterate_phdr(add, None)
print(*modules, *(name for name in libraries if "/" in name and name not in modules), sep="\\n")
"""
"""Prints the files of modules and shared libraries, by the names under which the program asked for them."""


def make_standalone(parent: Path, program: Path, modules: tuple[str, ...]) -> Path:
    """The directory of the copy in `parent`; one that was made before is used again. `modules` are all that the
    program imports."""
    python = Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()
    version = f"{sys.version}{python}{python.stat().st_mtime_ns}{modules}".encode()
    directory = parent / hashlib.sha256(version + program.read_bytes()).hexdigest()[:16]
    if directory.exists():
        return directory
    unfinished = directory.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    for name in ("bin", "lib"):
        (unfinished / name).mkdir(parents=True)
    shutil.copyfile(python, unfinished / "bin/python3")
    for file in _files(python, modules):
        _copy(file, unfinished)
    py_compile.compile(str(program), str(unfinished / f"{program.stem}.pyc"), doraise=True)
    for path in (unfinished, *unfinished.rglob("*")):
        path.chmod(0o755)  # containers may have any user
    unfinished.rename(directory)
    return directory


def command(directory: str, program: str) -> list[str]:
    """The words that run the program, where the copy is mounted at `directory`."""
    python = [f"{directory}/{_LINKER}", "--library-path", f"{directory}/lib", f"{directory}/bin/python3"]
    return [*python, "-I", "-S", "-B", f"{directory}/{program}.pyc"]


def _files(python: Path, modules: tuple[str, ...]) -> list[Path]:
    find = [str(python), "-I", "-S", "-c", _FIND.format(modules=", ".join(modules))]
    return [Path(line) for line in subprocess.check_output(find, text=True).splitlines()]


def _copy(file: Path, directory: Path) -> None:
    """Modules keep their place below the prefix of Python, so that it finds them; libraries lie in one directory."""
    prefix = Path(sys.base_prefix)
    inside = file.relative_to(prefix) if file.is_relative_to(prefix) else None
    if inside is not None and file.suffix == ".py":
        target = directory / inside.with_suffix(".pyc")
        target.parent.mkdir(parents=True, exist_ok=True)
        compiled = Path(cache_from_source(file))
        if compiled.exists():
            shutil.copyfile(compiled, target)
        else:
            py_compile.compile(str(file), str(target), doraise=True)
        return
    if inside is not None and "lib-dynload" in inside.parts:
        target = directory / inside
    elif file.name.startswith("ld"):
        target = directory / _LINKER
    else:
        target = directory / "lib" / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)
