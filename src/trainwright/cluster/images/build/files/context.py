"""The context of a build: the directory whose files COPY and ADD read, without what .dockerignore names, and what they
read from addresses."""

import hashlib
import os
import posixpath
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwright.cluster.images.blobs import is_full
from trainwright.cluster.images.build.files.copying import Attributes, CopyJob, NewFile, is_archive
from trainwright.cluster.images.build.files.tree import Tree, TreeFile, digest_of_file, digest_of_files
from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.dockerfile.ignore import IgnoreRules, PatternError, read_ignore_rules
from trainwright.cluster.images.dockerfile.instructions import Copy
from trainwright.cluster.images.dockerfile.lines import Heredoc
from trainwright.cluster.images.dockerfile.words import expand
from trainwright.objects.decimals import parse_decimal

_TIMEOUT = 60.0
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class CopyPattern:
    """A COPY or ADD whose sources are not found yet."""

    sources: Sequence[str]
    template: CopyJob
    excludes: Sequence[str]
    where: str
    """What users call the place of the sources."""

    def in_tree(self, tree: Tree) -> CopyJob:
        found: list[tuple[Tree, TreeFile]] = []
        rules = _exclude_rules(self.excludes)
        for source in self.sources:
            files = [file for file in tree.find(source) if not (rules and file.path and rules.ignores(file.path))]
            if not files:
                hint = "; .. does not lead out of it" if ".." in source.split("/") else ""
                raise BuildError(f"file not found in {self.where}: stat {source}: file does not exist{hint}")
            found += [(_excluding(tree, rules, file), file) for file in files]
        return replace(self.template, sources=tuple(found), several=self.template.several or len(found) > 1)


def _exclude_rules(excludes: Sequence[str]) -> IgnoreRules | None:
    try:
        return IgnoreRules(excludes) if excludes else None
    except PatternError as error:
        raise BuildError(str(error)) from error


def _excluding(tree: Tree, rules: IgnoreRules | None, file: TreeFile) -> Tree:
    """The tree without what --exclude names, whose patterns begin at the source."""
    if rules is None:
        return tree
    inside = f"{file.path}/" if file.path else ""
    return Tree(
        tree.root,
        lambda path: tree.ignores(path) or rules.ignores(path.removeprefix(inside)),
        tree.has_exceptions or rules.has_exceptions,
    )


def copy_job(copy: Copy, sources: Sequence[str], destination: str, *, mode: int | None) -> CopyPattern:
    several = len(sources) > 1
    template = CopyJob(destination, Attributes(mode=mode), parents=copy.parents, several=several)
    where = copy.origin or "build context or excluded by .dockerignore"
    return CopyPattern(sources, template, copy.excludes, where)


@dataclass
class FoundFiles:
    """What a COPY or ADD reads, with the digest of all of it. `close` removes what was downloaded."""

    job: CopyJob
    digest: str
    temporary: tempfile.TemporaryDirectory[str] | None = None
    opened: list[int] = field(default_factory=list)

    def close(self) -> None:
        for descriptor in self.opened:
            os.close(descriptor)
        if self.temporary is not None:
            self.temporary.cleanup()


class Context:
    """The directory stays open: inside the root directory of an image its path means something else."""

    def __init__(self, directory: Path, rules: IgnoreRules, temporary: Path) -> None:
        self._temporary = temporary
        self.descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.tree = Tree.of_context(f"/proc/self/fd/{self.descriptor}", rules)

    def close(self) -> None:
        os.close(self.descriptor)

    def read(
        self, copy: Copy, sources: Sequence[str], pattern: CopyPattern, variables: Mapping[str, str]
    ) -> FoundFiles:
        """Finds the sources of COPY or ADD in the context, at addresses and in here-documents."""
        found = FoundFiles(pattern.template, "")
        heredocs = {f"<<{heredoc.name}": heredoc for heredoc in copy.heredocs}
        local = []
        new_files: list[NewFile] = []
        archives: list[tuple[str, str]] = []
        digests = []
        try:
            for written, source in zip(copy.sources, sources, strict=True):
                heredoc = heredocs.get(written.replace("<<-", "<<").replace("'", "").replace('"', ""))
                if heredoc is not None and written.startswith("<<"):
                    new, digest = self._heredoc(found, heredoc, variables)
                    new_files.append(new)
                    digests.append(digest)
                elif copy.is_add and is_git(source):
                    raise BuildError("ADD does not fetch Git repositories: clone it and COPY the files")
                elif copy.is_add and is_address(source):
                    new, digest = self._download(found, source, copy.checksum, pattern.template.destination)
                    digests.append(digest)
                    if copy.unpack and is_archive(new.path):
                        archives.append((source, self._opened(found, new.path)))
                    else:
                        new_files.append(new)
                elif copy.checksum:
                    raise BuildError("--checksum is for addresses alone")
                else:
                    local.append(source)
            job = replace(pattern, sources=local).in_tree(self.tree) if local else pattern.template
            digests.append(self._digest(job.sources))
            if copy.is_add and copy.unpack is not False:
                job, more = self._split_archives(job)
                archives += more
            found.job = replace(
                job, new_files=tuple(new_files), archives=tuple(archives), several=job.several or len(new_files) > 1
            )
            found.digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()
        except BaseException:
            found.close()
            raise
        return found

    def digest(self, source: str) -> str:
        """The digest of what a bind mount of the source shows."""
        files = self.tree.find(source)
        if not files:
            raise BuildError(f"file not found in build context or excluded by .dockerignore: --mount of {source}")
        return self._digest([(self.tree, file) for file in files])

    def _digest(self, sources: Sequence[tuple[Tree, TreeFile]]) -> str:
        try:
            return hashlib.sha256("".join(digest_of_files(tree, file) for tree, file in sources).encode()).hexdigest()
        except OSError as error:
            name = str(error.filename or "").removeprefix(f"{self.tree.root}/")
            raise BuildError(f"cannot read {name or 'the context'}: {error.strerror or error}") from error

    def _split_archives(self, job: CopyJob) -> tuple[CopyJob, list[tuple[str, str]]]:
        """ADD unpacks local archives into the destination, which is then a directory."""
        archives, others = [], []
        for tree, file in job.sources:
            path = tree.absolute(file.path)
            if not file.is_directory and is_archive(path):
                archives.append((file.path, path))
            else:
                others.append((tree, file))
        return replace(job, sources=tuple(others)), archives

    def _directory(self, found: FoundFiles) -> str:
        if found.temporary is None:
            found.temporary = tempfile.TemporaryDirectory(prefix="add-", dir=self._temporary)
        return found.temporary.name

    def _opened(self, found: FoundFiles, path: str) -> str:
        """A path to the file that works in another root directory too."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found.opened.append(descriptor)
        return f"/proc/self/fd/{descriptor}"

    def _heredoc(self, found: FoundFiles, heredoc: Heredoc, variables: Mapping[str, str]) -> tuple[NewFile, str]:
        content = heredoc.content
        if heredoc.expand:
            content = "".join(_expand_line(line, variables) for line in content.splitlines(keepends=True))
        path = f"{self._directory(found)}/{len(found.opened)}"
        Path(path).write_text(content)
        digest = digest_of_file(path).hex()
        return NewFile(heredoc.name, self._opened(found, path), 0o644), digest

    def _download(self, found: FoundFiles, address: str, checksum: str, destination: str) -> tuple[NewFile, str]:
        path = f"{self._directory(found)}/{len(found.opened)}"
        loaded = download(address, path, checksum)
        if not loaded.name and destination.endswith("/"):
            raise BuildError(f"cannot determine the file name of {address}: the destination must not end with /")
        name = loaded.name or posixpath.basename(destination)
        return NewFile(name, self._opened(found, path), 0o600, loaded.mtime), loaded.digest


def _expand_line(line: str, variables: Mapping[str, str]) -> str:
    """Quotes in a here-document are ordinary characters."""
    quoted = line.replace('"', '\\"')
    return expand(f'"{quoted}"', variables) if "$" in line or "\\" in line else line


def read_context_rules(directory: Path, dockerfile: Path) -> IgnoreRules:
    """`NAME.dockerignore` beside the Dockerfile comes before .dockerignore of the context."""
    for path in (dockerfile.with_name(f"{dockerfile.name}.dockerignore"), directory / ".dockerignore"):
        try:
            return read_ignore_rules(path.read_text(errors="surrogateescape"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise BuildError(f"cannot read {path}: {error.strerror or error}") from error
        except PatternError as error:
            raise BuildError(f"{path.name}: {error}") from error
    return IgnoreRules([])


@dataclass(frozen=True, slots=True)
class Download:
    path: str
    name: str
    """The last part of the address; empty if it has none."""
    digest: str
    mtime: float | None


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def is_git(source: str) -> bool:
    return source.startswith(("git://", "git@", "ssh://")) or (
        is_address(source) and ".git" in source.partition("#")[0][-4:]
    )


def download(address: str, path: str, checksum: str) -> Download:
    """`checksum` is what the content must have, as ALGORITHM:HEX; empty for any content."""
    import http.client  # most builds download nothing
    import urllib.error
    import urllib.parse
    import urllib.request

    algorithm, _, expected = checksum.partition(":")
    if checksum and (algorithm not in {"sha256", "sha384", "sha512"} or not expected):
        raise BuildError(f"--checksum={checksum} is not of the form sha256:HEX")
    found = hashlib.sha256()
    checked = hashlib.new(algorithm) if checksum else found
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:  # noqa: S310 - the caller checks the scheme
            modified = answer.headers.get("Last-Modified")
            size, length = 0, answer.headers.get("Content-Length", "")
            with open(path, "xb") as file:
                while data := answer.read(_CHUNK):
                    file.write(data)
                    size += len(data)
                    found.update(data)
                    if checked is not found:
                        checked.update(data)
            if size < (parse_decimal(length) or 0):  # http.client says nothing
                raise BuildError(f"{address}: the server sent {size} of {length} bytes")
    except urllib.error.HTTPError as error:
        error.close()
        raise BuildError(f"{address}: the server answered {error.code} {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and is_full(error):
            raise
        cause = getattr(error, "reason", error)
        text = cause.strerror if isinstance(cause, OSError) and cause.strerror else cause
        raise BuildError(f"cannot read {address}: {text or type(cause).__name__}") from error
    if checksum and checked.hexdigest() != expected.lower():
        os.unlink(path)
        raise BuildError(f"{address}: its content has the checksum {algorithm}:{checked.hexdigest()}, not {checksum}")
    name = posixpath.basename(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
    return Download(path, name, found.hexdigest(), _seconds(modified))


def _seconds(modified: str | None) -> float | None:
    import email.utils

    try:
        return email.utils.parsedate_to_datetime(modified).timestamp() if modified else None
    except ValueError:
        return None
