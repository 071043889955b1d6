"""The data directories of all clusters that pods and builds of this user must not see.

Those of `--data-dir` are anywhere, so every cluster leaves a note of its own in one directory beside the default one.
"""

import hashlib
import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from trainwright.cluster.datadir import DataDir, write_atomically
from trainwright.cluster.owned_paths import UntrustedPathError, open_private_directory

_NOTES = "trainwright.clusters"
_DATA_HOME = ".local/share"
_CREDENTIALS = ".kube"


def register(data: DataDir) -> None:
    """Other clusters hide the directory from the pods that they start from now on. Forgets those that are gone.

    In a home of another user, as with `sudo`, there is no place for the note, and no other cluster of this user.
    """
    notes = _notes()
    try:
        os.close(open_private_directory(notes))
    except (UntrustedPathError, OSError):
        return
    for note, path in _read(notes):
        if not path.is_dir():
            note.unlink(missing_ok=True)
    real = os.path.realpath(data.path)
    write_atomically(notes / hashlib.sha256(os.fsencode(real)).hexdigest()[:16], os.fsencode(real))


def all_data_directories() -> list[Path]:
    """Those of this user's clusters; for root, whose pods read every file, those of other users in their usual places
    too, with their kubeconfigs."""
    notes = _notes()
    found = [notes, *(data.path for data in DataDir.all_named())]
    found += [path for _, path in _read(notes) if (path / "format").exists()]
    if os.geteuid() == 0:
        for home in _other_homes():
            share = home / _DATA_HOME
            found += [home / _CREDENTIALS, *share.glob("trainwright*")]
    return found


def _notes() -> Path:
    return DataDir.default().path.with_name(_NOTES)


def _read(notes: Path) -> Iterator[tuple[Path, Path]]:
    with suppress(FileNotFoundError):
        for note in sorted(notes.iterdir()):
            with suppress(FileNotFoundError):
                yield note, Path(os.fsdecode(note.read_bytes()))


@cache
def _other_homes() -> tuple[Path, ...]:
    homes = {Path(entry.pw_dir) for entry in pwd.getpwall() if entry.pw_uid != 0}
    return tuple(sorted(home for home in homes if home.is_absolute() and home != Path("/")))
