"""What a build is made from, as users name it: a directory, standard input, or an address."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainwright.cluster.images.blobs import disk_error, is_full
from trainwright.cluster.images.build.files.context import download, is_address, is_git
from trainwright.cluster.images.build.files.copying import is_archive, unpack_archive
from trainwright.cluster.images.build.files.tree import Tree
from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.layers.namespace import remove_tree
from trainwright.cluster.images.store import ImageStore
from trainwright.programs import find_program

STANDARD_INPUT = "-"
_DOCKERFILE = "Dockerfile"
_CONTAINERFILE = "Containerfile"
"""Podman's name of the same."""
_CREDENTIALS = re.compile(r"(?<=^https://)[^/]*@|(?<=^http://)[^/]*@")
_GIT_SECONDS = 600
_PROTOCOLS = "git:http:https:ssh"
_OTHER_REPOSITORY = frozenset(
    f"GIT_{name}"
    for name in ("DIR", "WORK_TREE", "COMMON_DIR", "INDEX_FILE", "OBJECT_DIRECTORY", "NAMESPACE", "PREFIX")
)
"""Hooks of Git run with these variables, which name the user's own repository."""


@dataclass(frozen=True, slots=True)
class BuildSource:
    context: Path
    dockerfile: Path


@contextmanager
def open_source(
    store: ImageStore, context: str, dockerfile: str | None, standard_input: BinaryIO
) -> Iterator[BuildSource]:
    """`context` is a directory, an address, or `-`; `dockerfile` a file, or `-`.

    As in Docker, standard input and addresses may give a Dockerfile without a context, or an archive with both. What
    was fetched is removed at the end.
    """
    if context == dockerfile == STANDARD_INPUT:
        raise BuildError(
            "standard input cannot be both the context and the Dockerfile: name a directory, or leave out -f"
        )
    if os.path.isdir(context) and dockerfile != STANDARD_INPUT:
        directory = Path(context).absolute()
        yield BuildSource(
            directory, Path(dockerfile).absolute() if dockerfile else directory / _default_dockerfile(directory)
        )
        return
    with store.lease():
        temporary = Path(tempfile.mkdtemp(prefix="context-", dir=store.directory / "tmp"))
        try:
            try:
                source = _fetch(temporary, context, dockerfile, standard_input)
            except OSError as error:
                if is_full(error):
                    raise disk_error(store.directory, error) from error
                raise BuildError(f"cannot read {_shown(context)}: {error.strerror or error}") from error
            yield source
        finally:
            remove_tree(temporary)


def _fetch(temporary: Path, context: str, dockerfile: str | None, standard_input: BinaryIO) -> BuildSource:
    written = temporary / _DOCKERFILE
    directory = temporary / "context"
    directory.mkdir(mode=0o755)
    if dockerfile == STANDARD_INPUT:
        _write(standard_input, written)
    if os.path.isdir(context):
        return BuildSource(Path(context).absolute(), written)
    if is_git(context) or context.startswith("github.com/"):
        directory = _clone(context, directory)
    else:
        loaded = temporary / "loaded"
        _load(context, loaded, standard_input)
        if not is_archive(str(loaded)):
            if dockerfile is not None:
                raise BuildError(
                    f"{_shown(context)} is no archive, so it is the Dockerfile, and -f names another: leave out one"
                )
            return BuildSource(directory, loaded.rename(written))
        unpack_archive(_shown(context), str(loaded), str(directory))
        loaded.unlink()
    if dockerfile == STANDARD_INPUT:
        return BuildSource(directory, written)
    return BuildSource(
        directory, _find_dockerfile(directory, dockerfile or _default_dockerfile(directory), _shown(context))
    )


def _load(context: str, path: Path, standard_input: BinaryIO) -> None:
    """Writes what standard input or an address gives to a file."""
    if context == STANDARD_INPUT:
        _write(standard_input, path)
    elif is_address(context):
        download(context, str(path), "")
    elif os.path.isfile(context):
        raise BuildError(f"{context} is a file: name the directory to build from, and the Dockerfile with -f")
    else:
        raise BuildError(f"{context} is not a directory: name the directory to build from, an address, or -")


def _default_dockerfile(directory: Path) -> str:
    is_podmans = not (directory / _DOCKERFILE).exists() and (directory / _CONTAINERFILE).exists()
    return _CONTAINERFILE if is_podmans else _DOCKERFILE


def _find_dockerfile(directory: Path, name: str, where: str) -> Path:
    tree = Tree(str(directory))
    path = Path(tree.absolute(tree.resolve(name)))
    if not path.is_file():
        raise BuildError(f"{where} has no file {name}: name the Dockerfile in it with -f")
    return path


def _write(stream: BinaryIO, path: Path) -> None:
    with path.open("xb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)


def _clone(address: str, directory: Path) -> Path:
    """Fetches one commit of a Git repository, `ADDRESS#REFERENCE:DIRECTORY`. Returns the directory."""
    repository, _, fragment = address.partition("#")
    reference, _, inside = fragment.partition(":")
    if repository.startswith("github.com/"):
        repository = f"https://{repository}"
    shown = _shown(repository)
    program = find_program("git")
    if program is None:
        raise BuildError(
            f"{shown} is a Git repository, and the program git is not here: install it, or build from a clone"
        )
    commands = (
        ("init", "--quiet"),
        ("fetch", "--quiet", "--depth=1", "--", repository, reference or "HEAD"),
        ("checkout", "--quiet", "FETCH_HEAD"),
        ("submodule", "--quiet", "update", "--init", "--recursive", "--depth=1"),
    )
    for words in commands:
        if cause := _run_git(program, words, directory):
            raise BuildError(f"git {words[0]} of {shown}: {cause.replace(repository, shown)}")
    shutil.rmtree(directory / ".git")
    tree = Tree(str(directory))
    found = Path(tree.absolute(tree.resolve(inside)))
    if not found.is_dir():
        raise BuildError(f"{shown} has no directory {inside}")
    return found


def _run_git(program: str, words: Sequence[str], directory: Path) -> str:
    """Returns why it failed; empty if it did not."""
    environment = {name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY}
    # Submodules are named by the repository: none of this machine, and no program as with ext::.
    protocols = _PROTOCOLS if words[0] == "submodule" else f"file:{_PROTOCOLS}"
    try:
        done = subprocess.run(
            [program, *words],
            cwd=directory,
            env=environment | {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": protocols},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {_GIT_SECONDS} seconds"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]


def _shown(context: str) -> str:
    """Without the token or password of an address, which must not get into the logs of a CI system."""
    return "standard input" if context == STANDARD_INPUT else _CREDENTIALS.sub("", context)
