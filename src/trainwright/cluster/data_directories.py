"""The data directories of all clusters that pods and builds of this user must not see.

Those of `--data-dir` are anywhere, so every cluster leaves a note of its own in one directory of the user's home.
"""

import hashlib
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from trainwright.cluster.datadir import DataDir, write_atomically
from trainwright.cluster.linux.mounts import is_below, read_mounts
from trainwright.cluster.owned_paths import UntrustedPathError, open_private_directory

_DATA_HOME = ".local/share"
_NOTES = f"{_DATA_HOME}/trainwright.clusters"
_CREDENTIALS = ".kube"
_MAX_PATH_BYTES = 4096
_FIRST_USER = 1000


def register(data: DataDir) -> None:
    """Other clusters hide the directory from the pods that they start from now on. Forgets those that are gone.

    There is no place for the note in a home of another user, as with `sudo`, or on a full disk: then pods of other
    clusters of this user see the directory.
    """
    notes, real = Path.home() / _NOTES, os.path.realpath(data.path)
    with suppress(UntrustedPathError, OSError):
        os.close(open_private_directory(notes))
        present = dict(_read(notes))
        for note, path in present.items():
            if not path.is_dir():
                note.unlink(missing_ok=True)
        note = notes / hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
        if present.get(note) != Path(real):
            write_atomically(note, os.fsencode(real))


def all_data_directories() -> list[Path]:
    """Those that exist of this user's clusters; for root, whose pods read every file, those of other users in their
    usual places too. Kubeconfigs in homes are among them."""
    found = [data.path for data in DataDir.all_named()]
    for home in {Path.home(), Path(pwd.getpwuid(os.geteuid()).pw_dir)}:
        found += [home / _CREDENTIALS, home / _NOTES, *(home / _DATA_HOME).glob("trainwright*")]
        found += [path for _, path in _read(home / _NOTES) if (path / "format").exists()]
    if os.geteuid() == 0:
        for home in _other_homes():
            found += [home / _CREDENTIALS, *(home / _DATA_HOME).glob("trainwright*")]
    return [path for path in dict.fromkeys(found) if path.exists()]


def _read(notes: Path) -> Iterator[tuple[Path, Path]]:
    """The notes of this user, not of another one in whose home this command runs."""
    with suppress(OSError):
        if notes.lstat().st_uid != os.geteuid():
            return
        for note in sorted(notes.iterdir()):
            status = note.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_PATH_BYTES:
                yield note, Path(os.fsdecode(note.read_bytes()))


@cache
def _other_homes() -> tuple[Path, ...]:
    """Without those that would have to be mounted first."""
    automatic = [point for _, _, point, kind in read_mounts() if kind == "autofs"]
    homes = {entry.pw_dir for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_USER}
    return tuple(Path(home) for home in sorted(homes) if home.startswith("/") and not is_below(home, automatic))
