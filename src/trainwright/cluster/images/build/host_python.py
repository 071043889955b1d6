"""The Python of images over the host's files: a virtual environment with the packages of the pods' named Python.

It is the first layer of such an image, so that `pip install` writes to the image, as root or as an ordinary user, who
could not write to the host's /usr/lib in an overlay.
"""

import json
import os
import subprocess
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.cluster.images.build.messages import BuildError
from trainwright.programs import python_environment

PREFIX = "/opt/trainwright/python"
PYTHON_LABEL = "dev.trainwright.python"
"""The Python of this machine whose packages the image's Python has."""

_TIME = 315_532_800
"""The time of its files, so that they are always the same: 1980, the oldest time of ZIP archives."""

_DESCRIBE = """
import json, os, site, sys, sysconfig
paths = [path for path in dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])]
in_environment = sys.prefix != sys.base_prefix
try:
    import pip
    pip_version = pip.__version__
except Exception:
    pip_version = ""
wheel = ""
if not pip_version:
    try:
        import ensurepip
        found = [os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"), "/usr/share/python-wheels"]
        wheels = [os.path.join(top, name) for top in found if os.path.isdir(top) for name in sorted(os.listdir(top))]
        wheel = next((path for path in wheels if os.path.basename(path).startswith("pip-")), "")
    except Exception:
        pass
print(json.dumps({
    "executable": getattr(sys, "_base_executable", None) or sys.executable,
    "version": ".".join(map(str, sys.version_info[:3])),
    "in_environment": in_environment,
    "site": [path for path in paths if os.path.isdir(path)],
    "pip": pip_version,
    "wheel": wheel,
    "scripts": sysconfig.get_path("scripts"),
    "prefix": sys.prefix,
}))
"""


@dataclass(frozen=True, slots=True)
class HostPython:
    path: str
    """As the user names it."""
    executable: str
    """Without virtual environments."""
    version: str
    in_environment: bool
    site: tuple[str, ...]
    scripts: str
    pip: str
    """The version of its pip; empty if it has none, as environments that uv has made."""
    wheel: str = ""
    """The pip that ensurepip would install then."""
    prefix: str = ""
    data: tuple[str, ...] = ()
    """What packages have installed into the environment besides modules and commands, such as lib/libmpi.so."""

    @property
    def library(self) -> str:
        return f"{PREFIX}/lib/python{'.'.join(self.version.split('.')[:2])}/site-packages"

    @property
    def directories(self) -> list[str]:
        """The directories of this Python and of the one that its environment was made from."""
        found = {os.path.dirname(os.path.dirname(path)) for path in (self.path, self.executable)}
        return sorted(found - {"/", "/usr", "/usr/local"})

    @property
    def identity(self) -> list[Any]:
        """What the layer depends on."""
        return [self.path, self.executable, self.version, list(self.site), self.pip, self.wheel, list(self.data)]


def describe_python(path: Path) -> HostPython:
    try:
        answer = subprocess.run(
            [str(path), "-c", _DESCRIBE],
            env=python_environment(),
            cwd="/",  # with -c modules of the current directory come first
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        found = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BuildError(f"cannot use the Python {path}: {error}; choose another with --python") from error
    site, data = found.pop("site"), _data(found["prefix"]) if found["in_environment"] else ()
    return HostPython(path=str(path), site=tuple(site), data=tuple(data), **found)


def _data(prefix: str) -> list[str]:
    """Packages look for these files below `sys.prefix`."""
    found = []
    for directory in ("etc", "include", "lib", "share"):
        with suppress(OSError):
            names = sorted(os.listdir(f"{prefix}/{directory}"))
            found += [f"{directory}/{name}" for name in names if not name.startswith("python")]
    return found


def python_files(python: HostPython) -> dict[str, str | bytes]:
    """The files of the environment by path: text of files; links are `link:TARGET`."""
    minor = ".".join(python.version.split(".")[:2])
    files: dict[str, str | bytes] = {
        f"{PREFIX}/bin/python3": f"link:{python.executable}",
        f"{PREFIX}/bin/python": "link:python3",
        f"{PREFIX}/bin/python{minor}": "link:python3",
        f"{PREFIX}/pyvenv.cfg": (
            f"home = {os.path.dirname(python.executable)}\n"
            f"include-system-site-packages = {'false' if python.in_environment else 'true'}\n"
            f"version = {python.version}\n"
        ),
    }
    if python.in_environment:
        # Behind the packages that the image installs itself, with the .pth files of the environment.
        lines = [f"import site; site.addsitedir({path!r})\n" for path in python.site]
        files[f"{python.library}/trainwright_host.pth"] = "".join(lines)
        files.update(_scripts(python))
        files.update({f"{PREFIX}/{path}": f"link:{python.prefix}/{path}" for path in python.data})
    if python.wheel:
        files.update(_unpack_wheel(python))
    if python.pip or python.wheel:
        for name in ("pip", "pip3", f"pip{minor}"):
            files[f"{PREFIX}/bin/{name}"] = _PIP.format(python=f"{PREFIX}/bin/python3")
    files[f"{python.library}/README.txt"] = f"Packages that the image has besides those of {python.path}.\n"
    return files


_PIP = """#!{python}
import sys
from pip._internal.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""


def _unpack_wheel(python: HostPython) -> dict[str, str | bytes]:
    with zipfile.ZipFile(python.wheel) as wheel:
        return {f"{python.library}/{name}": wheel.read(name) for name in wheel.namelist() if not name.endswith("/")}


def _scripts(python: HostPython) -> dict[str, str | bytes]:
    """Commands such as torchrun, with the image's Python in their first line."""
    found: dict[str, str | bytes] = {}
    try:
        entries = sorted(os.scandir(python.scripts), key=lambda entry: entry.name)
    except OSError:
        return found
    for entry in entries:
        if not entry.is_file() or entry.is_symlink() or entry.stat().st_size > 1 << 16:
            continue
        with open(entry.path, "rb") as file:
            first, body = file.readline(), file.read()
        if first.startswith(b"#!" + os.fsencode(python.scripts) + b"/python"):
            found[f"{PREFIX}/bin/{entry.name}"] = f"#!{PREFIX}/bin/python3\n".encode() + body
    return found


def write_files(files: dict[str, str | bytes], top: str) -> None:
    for path, content in files.items():
        target = top + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if isinstance(content, str) and content.startswith("link:"):
            os.symlink(content.removeprefix("link:"), target)
            continue
        with open(target, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(target, 0o755 if os.path.dirname(target).endswith("/bin") else 0o644)
    for directory, _, names in os.walk(top):
        for path in (directory, *(f"{directory}/{name}" for name in names)):
            os.utime(path, (_TIME, _TIME), follow_symlinks=False)
