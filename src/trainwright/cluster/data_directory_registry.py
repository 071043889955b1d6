"""The data directories of all clusters that pods and builds of this user must not see.

Those of `--data-dir` are anywhere, so every cluster leaves a note of its own in one directory of the user's home.
"""

import hashlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

from trainwright.atomic_files import write_atomically
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.linux.mounts import is_below, read_mounts
from trainwright.cluster.owned_paths import UntrustedPathError, open_private_directory

_DATA_HOME = ".local/share"
_NOTES = f"{_DATA_HOME}/trainwright.clusters"
_CREDENTIALS = ".kube"
_MAX_PATH_BYTES = 4096
_FIRST_USER = 1000
_MOST_OF_ANOTHER_USER = 64
"""Directories that root hides for each of them: each is a mount in every pod."""
_MOST_NOTES = 1000
_WATCHED = ("", _DATA_HOME, _NOTES)
"""The directories of each home whose changes are noticed."""


def register(data: DataDir) -> None:
    """Other clusters hide the directory from the pods that they start from now on. Forgets those that are gone.

    In a home of another user, as with `sudo`, or on a full disk there is no place for notes: then pods of other
    clusters see the directory.
    """
    real = os.path.realpath(data.path)
    for home in _own_homes():
        notes = home / _NOTES
        with suppress(UntrustedPathError, OSError):
            _make_private_directories(home)
            present = dict(_read(notes, os.geteuid()))
            for note, path in present.items():
                if not path.is_dir():
                    note.unlink(missing_ok=True)
            note = _note(notes, real)
            if present.get(note) != Path(real):
                write_atomically(note, os.fsencode(real))


def _make_private_directories(home: Path) -> None:
    """What pods must not make first in a shared home: they would choose where credentials are written. What exists can
    be hidden from the pods that start now."""
    for name in (_CREDENTIALS, f"{_DATA_HOME}/trainwright", _NOTES):
        os.close(open_private_directory(home / name))


def unregister(data: DataDir) -> None:
    """Removes the note of a directory that is about to be deleted."""
    for home in _own_homes():
        with suppress(OSError):
            _note(home / _NOTES, os.path.realpath(data.path)).unlink(missing_ok=True)


def _note(notes: Path, real: str) -> Path:
    return notes / hashlib.sha256(os.fsencode(real)).hexdigest()[:16]


def all_data_directories() -> list[Path]:
    """The real paths of those that exist now."""
    return [Path(path) for path in DataDirectories().find()]


class DataDirectories:
    """The data directories of this user's clusters; for root, whose pods read every file, those of all users. The
    directories of kubeconfigs in homes are among them."""

    def __init__(self) -> None:
        self._homes = {home: os.geteuid() for home in _own_homes()}
        if os.geteuid() == 0:
            self._homes = dict(_other_homes()) | self._homes
        watched = [DataDir.default().path.parent, *(home / name for home in self._homes for name in _WATCHED)]
        self._watched = [str(directory) for directory in watched]
        self._version: list[int] = []
        self._found: list[str] = []

    def find(self) -> list[str]:
        """Their real paths. Every pod asks: they are found anew only if one of the directories above has changed."""
        version = [_modified(directory) for directory in self._watched]
        if version != self._version:
            for home in _own_homes():
                with suppress(UntrustedPathError, OSError):
                    _make_private_directories(home)
            self._version = [_modified(directory) for directory in self._watched]
            self._found = list(dict.fromkeys(map(os.path.realpath, _find(self._homes))))
        return self._found


def _modified(directory: str) -> int:
    try:
        return os.stat(directory).st_mtime_ns  # noqa: PTH116 - on every start of a pod
    except OSError:
        return 0


def _find(homes: Mapping[Path, int]) -> list[Path]:
    found = [data.path for data in DataDir.all_named()]
    for home, user in homes.items():
        named = islice((home / _DATA_HOME).glob("trainwright*"), _MOST_NOTES)
        noted = (path for _, path in _read(home / _NOTES, user) if _is_data_directory(path, user))
        of_user = [home / _CREDENTIALS, home / _NOTES, *named, *noted]
        found += of_user if user == os.geteuid() else of_user[:_MOST_OF_ANOTHER_USER]
    return [path for path in dict.fromkeys(found) if path.exists()]


def _own_homes() -> list[Path]:
    """HOME, and that of the user database, which clusters with another HOME have in common."""
    return list(dict.fromkeys((Path.home(), Path(pwd.getpwuid(os.geteuid()).pw_dir))))


def _is_data_directory(path: Path, user: int) -> bool:
    """A note must not hide any directory."""
    try:
        return path.stat().st_uid == user and (path / "format").exists()
    except OSError:
        return False


def _read(notes: Path, user: int) -> Iterator[tuple[Path, Path]]:
    """The notes of a user in a directory of that user."""
    with suppress(OSError):
        if notes.lstat().st_uid != user:
            return
        for note in sorted(islice(notes.iterdir(), _MOST_NOTES)):
            status = note.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_PATH_BYTES:
                yield note, Path(os.fsdecode(note.read_bytes()))


@cache
def _other_homes() -> tuple[tuple[Path, int], ...]:
    """The homes of other users, with their users, without those that would have to be mounted first."""
    automatic = [point for _, _, point, kind in read_mounts() if kind == "autofs"]
    homes = {entry.pw_dir: entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_USER}
    usable = (home for home in sorted(homes) if home.startswith("/") and not is_below(home, automatic))
    return tuple((Path(home), homes[home]) for home in usable)
