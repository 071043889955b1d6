"""Files to copy from: the context of a build, or the root directory of a stage or an image.

Links are followed inside the tree alone: an absolute link begins at its root, and none leads out of it. Files are read
where the caller says the tree is, which inside a container is a directory of /proc/self/fd.
"""

import errno
import hashlib
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainwright.cluster.images.dockerfile.ignore import IgnoreRules, glob_regex

_MAX_LINKS = 40
_MAGIC = frozenset("*?[\\")


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file, directory or link below the root."""

    path: str
    """Relative to the root, without `.` and `..`; empty for the root itself."""
    status: os.stat_result
    name: str = ""
    """What it is called at its destination: the last part of what was asked for, which may be a link to it."""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


def _ignores_nothing(_: str) -> bool:
    return False


@dataclass(frozen=True)
class Tree:
    root: str
    ignores: Callable[[str], bool] = _ignores_nothing
    has_exceptions: bool = False

    @classmethod
    def of_context(cls, root: str, rules: IgnoreRules) -> "Tree":
        return cls(root, rules.ignores, rules.has_exceptions) if rules else cls(root)

    def absolute(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def status(self, path: str) -> os.stat_result:
        """The status of the file itself: links are not followed."""
        # A trailing slash: the root may be a link in /proc/self/fd.
        return os.lstat(self.absolute(path)) if path else os.stat(f"{self.root}/.")

    def resolve(self, path: str) -> str:
        """The path without links, relative to the root; files need not exist."""
        pending = [part for part in path.split("/") if part not in {"", "."}][::-1]
        done: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                del done[-1:]
                continue
            here = "/".join((*done, part))
            try:
                target = os.readlink(self.absolute(here))
            except OSError:
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done.clear()
            pending.extend(part for part in reversed(target.split("/")) if part not in {"", "."})
        return "/".join(done)

    def find(self, pattern: str) -> list[TreeFile]:
        """The files that a source of COPY or ADD names, links resolved; those that are ignored do not exist."""
        cleaned = posixpath.normpath("/" + pattern).lstrip("/")
        if not _MAGIC.intersection(cleaned):
            return self._existing(cleaned)
        return [file for name in self._matches(cleaned) for file in self._existing(name)]

    def _existing(self, path: str) -> list[TreeFile]:
        resolved = self.resolve(path)
        if any(self.ignores(name) and not self.has_exceptions for name in {path, resolved} if name):
            return []
        try:
            found = TreeFile(resolved, self.status(resolved), posixpath.basename(path))
        except OSError:
            return []
        if resolved and self.ignores(resolved) and not (found.is_directory and self.has_exceptions):
            return []
        return [found]

    def _matches(self, pattern: str) -> list[str]:
        """Paths that match, one part of the pattern for each directory; `**` matches any number of them."""
        regex = glob_regex(pattern)
        fixed = []
        for part in pattern.split("/"):
            if _MAGIC.intersection(part):
                break
            fixed.append(part)
        depth = None if "**" in pattern else pattern.count("/")
        start = self.resolve("/".join(fixed))
        written = "/".join(fixed)
        found = []
        for file in self.walk(start):
            below = file.path[len(start) :].lstrip("/") if start else file.path
            name = posixpath.join(written, below) if below else written
            if (depth is None or name.count("/") == depth) and regex.fullmatch(name):
                found.append(name)
        return sorted(found)

    def walk(self, path: str = "") -> Iterator[TreeFile]:
        """Everything below a directory, in the order of names, without what is ignored."""
        pending = [path]
        while pending:
            directory = pending.pop()
            try:
                names = sorted(os.listdir(f"{self.absolute(directory)}/."), key=os.fsencode)
            except NotADirectoryError:
                continue
            below = []
            for name in names:
                found = f"{directory}/{name}" if directory else name
                ignored = self.ignores(found)
                if ignored and not self.has_exceptions:
                    continue
                status = os.lstat(self.absolute(found))
                if not ignored:
                    yield TreeFile(found, status)
                if stat.S_ISDIR(status.st_mode):
                    below.append(found)
            pending.extend(reversed(below))

    def ignored(self) -> Iterator[str]:
        """Everything that is ignored; of a directory that is ignored as a whole, itself alone."""
        if self.ignores is _ignores_nothing:
            return
        kept = {""}
        for file in self.walk():
            path = file.path
            while path not in kept:
                kept.add(path)
                path = posixpath.dirname(path)
        pending = [""]
        while pending:
            directory = pending.pop()
            for entry in os.scandir(f"{self.absolute(directory)}/."):
                path = posixpath.join(directory, entry.name)
                if path not in kept:
                    yield path
                elif entry.is_dir(follow_symlinks=False):
                    pending.append(path)


def digest_of_files(tree: Tree, top: TreeFile) -> str:
    """One digest of a file, or of a directory and all that is below it: the same files, modes and links give the same
    one, whatever their times."""
    total = hashlib.sha256()
    _add(total, tree, top, prefix=top.path)
    if top.is_directory:
        for below in tree.walk(top.path):
            _add(total, tree, below, prefix=top.path)
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
    with open(path, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()
