"""What `RUN --mount` shows a command besides the files of the image; none of it becomes a part of the image."""

import errno
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.cluster.images.build.files.copying import make_directories, set_owner
from trainwright.cluster.images.build.files.tree import Tree
from trainwright.cluster.images.dockerfile.instructions import Mount
from trainwright.cluster.images.layers.image_root import Bind, in_user_namespace
from trainwright.cluster.linux.mounts import NODEV, NOEXEC, NOSUID, RDONLY, mount

_SECRET_MODE = 0o400
_CACHE_MODE = 0o755


@dataclass(frozen=True, slots=True)
class RunMount:
    what: Mount
    target: str
    """An absolute path; empty for a secret that is a variable alone."""
    tree: Tree | None = None
    """The directory of a cache, or of the context."""
    layers: Sequence[str] | None = None
    """The layers of the image in which the source is."""
    secret: bytes | None = field(default=None, repr=False)
    agent: str = ""
    """The socket of an SSH agent."""

    @property
    def variables(self) -> dict[str, str]:
        if self.agent:
            return {"SSH_AUTH_SOCK": self.target}
        is_variable = self.what.variable and self.secret is not None
        return {self.what.variable: os.fsdecode(self.secret or b"")} if is_variable else {}

    def binds(self, scratch: str) -> list[Bind]:
        """In a mount namespace that ends with the step."""
        if self.what.type == "secret":
            return [Bind(self._secret_file(scratch), self.target)] if self.secret is not None and self.target else []
        if self.agent:
            return [Bind(self.agent, self.target)]
        if self.layers is not None:
            tree = Tree(mount_layers(self.layers, scratch))
        elif self.tree is not None:
            tree = Tree(_without_ignored(self.tree, scratch))
        else:
            return []
        source = tree.absolute(tree.resolve(self.what.source))
        if not os.path.lexists(source):
            raise FileNotFoundError(errno.ENOENT, f"--mount: {self.what.source} does not exist", source)
        if self.what.type == "bind" and not self.what.read_only:
            source = _writable(source, scratch)
        return [Bind(source, self.target, read_only=self.what.read_only)]

    def mount_memory(self) -> None:
        """Inside the root directory of the image."""
        if self.what.type == "tmpfs":
            make_directories(self.target, None)
            mount("tmpfs", self.target, "tmpfs", NOSUID | NODEV, f"size={self.what.size}" if self.what.size else None)

    def _secret_file(self, scratch: str) -> str:
        """In memory: a secret is never written to the disk."""
        place = tempfile.mkdtemp(dir=scratch)
        mount("tmpfs", place, "tmpfs", NOSUID | NODEV | NOEXEC, "mode=700")
        path = f"{place}/secret"
        with open(path, "xb") as file:
            file.write(self.secret or b"")
        os.chmod(path, _SECRET_MODE if self.what.mode is None else self.what.mode)
        set_owner(path, self.what.user, self.what.group)
        return path


def cache_tree(parent: Path, what: Mount, target: str) -> Tree:
    """The directory of a cache, which all builds share; it gets its mode and owner when it is made."""
    path = parent / hashlib.sha256((what.id or target).encode()).hexdigest()[:32]
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(_CACHE_MODE if what.mode is None else what.mode)
        set_owner(str(path), what.user, what.group)
    return Tree(str(path))


def mount_layers(layers: Sequence[str], scratch: str) -> str:
    """In a mount namespace that ends with the step: where the files of layers are seen, the topmost first."""
    if len(layers) == 1:
        return layers[0]
    place = tempfile.mkdtemp(dir=scratch)
    if layers:
        _mount_overlay(layers, place, scratch, RDONLY)
    return place


def _mount_overlay(lowers: Sequence[str], place: str, scratch: str, flags: int = 0, options: str = "") -> None:
    # Links with short names: the options of a mount are one page at most.
    names = tempfile.mkdtemp(dir=scratch)
    for number, lower in enumerate(lowers):
        os.symlink(lower, f"{names}/{number}")
    lower = ":".join(f"{names}/{number}" for number in range(len(lowers)))
    attributes = ",userxattr" if in_user_namespace() else ""
    mount("overlay", place, "overlay", NODEV | flags, f"lowerdir={lower}{options}{attributes}")


def _without_ignored(tree: Tree, scratch: str) -> str:
    """The directory of a context as COPY sees it: an overlay hides what .dockerignore names."""
    ignored = list(tree.ignored())
    if not ignored:
        return tree.root
    whiteouts = tempfile.mkdtemp(dir=scratch)
    os.chmod(whiteouts, tree.status("").st_mode & 0o7777)
    for path in ignored:
        parent = ""
        for name in path.split("/")[:-1]:
            parent = f"{parent}/{name}".lstrip("/")
            if not os.path.isdir(f"{whiteouts}/{parent}"):
                os.mkdir(f"{whiteouts}/{parent}")
                os.chmod(f"{whiteouts}/{parent}", tree.status(parent).st_mode & 0o7777)
        os.mknod(f"{whiteouts}/{path}", 0o020000, os.makedev(0, 0))
    return mount_layers([whiteouts, tree.root], scratch)


def _writable(source: str, scratch: str) -> str:
    """What the command writes to it is dropped, as by BuildKit."""
    if not os.path.isdir(source):
        raise OSError(errno.ENOTSUP, "--mount=type=bind,rw is for directories: name that of the file")
    place = tempfile.mkdtemp(dir=scratch)
    above = tempfile.mkdtemp(dir=scratch)
    for in_memory in (False, True):  # the kernel refuses some file systems
        if in_memory:
            mount("tmpfs", above, "tmpfs", NOSUID | NODEV)
        for name in ("upper", "work"):
            os.mkdir(f"{above}/{name}", 0o755)
        try:
            _mount_overlay([source], place, scratch, options=f",upperdir={above}/upper,workdir={above}/work")
        except OSError:
            if in_memory:
                raise
        else:
            break
    return place
