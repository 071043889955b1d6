"""Digests of what COPY and ADD read: the same files, modes and links give the same digest, whatever their times."""

import hashlib
import os
import stat
from collections.abc import Iterable

from trainwright.cluster.images.build.files.tree import Tree, TreeFile

_CHUNK = 1 << 20


def digest_of_files(tree: Tree, files: Iterable[TreeFile]) -> str:
    """One digest of the files and all that is below directories among them."""
    total = hashlib.sha256()
    for file in files:
        _add(total, tree, file, prefix=file.path)
        if file.is_directory:
            for below in tree.walk(file.path):
                _add(total, tree, below, prefix=file.path)
    return total.hexdigest()


def _add(total: "hashlib._Hash", tree: Tree, file: TreeFile, *, prefix: str) -> None:
    mode = file.status.st_mode
    name = os.fsencode(file.path[len(prefix) :].lstrip("/") or file.name)
    total.update(b"%d %o %d:%d\0%b\0" % (len(name), mode, 0, 0, name))
    path = tree.absolute(file.path)
    if stat.S_ISLNK(mode):
        total.update(os.fsencode(os.readlink(path)) + b"\0")
    elif stat.S_ISREG(mode):
        total.update(digest_of_file(path))


def digest_of_file(path: str) -> bytes:
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            found.update(data)
    return found.digest()
