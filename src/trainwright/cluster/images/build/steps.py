"""The steps of a build that change files: they run on the layers of the image, and what they write is a new layer.

Called as the root of containers (`layers.namespace`), with a lease of the store.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from trainwright.cluster.images.blobs import disk_error, is_full
from trainwright.cluster.images.build.configuration import DEFAULT_PATH, environment, shell_of
from trainwright.cluster.images.build.files.copying import (
    Account,
    Attributes,
    Copier,
    CopyJob,
    find_account,
    make_directories,
    unpack_archives,
)
from trainwright.cluster.images.build.files.tree import Tree, TreeFile
from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.build.options import DEFAULT_SSH, BuildOptions
from trainwright.cluster.images.build.run_mounts import RunMount, cache_tree, mount_layers
from trainwright.cluster.images.build.state import BuildState
from trainwright.cluster.images.dockerfile.ignore import PatternError
from trainwright.cluster.images.dockerfile.instructions import Mount, Run
from trainwright.cluster.images.formats import Descriptor
from trainwright.cluster.images.layers.built import BuiltLayers
from trainwright.cluster.images.layers.image_root import Bind, ImageRoot, run_in_image_root, written
from trainwright.cluster.images.layers.namespace import remove_tree
from trainwright.cluster.images.layers.unpack import LayerError
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.store import ImageStore
from trainwright.cluster.linux.privileges import CONTAINER_CAPABILITIES, restrict_process
from trainwright.cluster.linux.security_json import SecurityJson

_NETWORK_FILES = ("/etc/hosts", "/etc/resolv.conf")
_SCRIPT = re.compile(r"^<<-?(['\"]?)([^'\"\s<>&|;]+)\1$")
_ORIGIN = "/dev/shm/origin"  # noqa: S108 - memory of the container
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_FAILED = 1


Prepare = Callable[[str], Sequence[Bind]]
"""Mounts what a step needs, in a directory that it gets, and returns where the step sees it."""


class Steps:
    """`output` is the descriptor to which programs write."""

    def __init__(self, store: ImageStore, options: BuildOptions, output: int, shown: Sequence[str] = ()) -> None:
        """`shown` are directories that programs on the host's files see although they are in /tmp."""
        self._shown = [path for path in shown if path.startswith("/tmp/")]  # noqa: S108
        self._store = store
        self._options = options
        self._output = output
        self._unpacked = UnpackedLayers(store)
        self._built = BuiltLayers(store)

    # Files

    def copy(self, state: BuildState, job: CopyJob, *, chown: str) -> Descriptor | None:
        """Files get the owner that --chown names, else root; those of archives keep theirs without --chown."""
        is_empty = not state.layers and not state.uses_host_files
        if is_empty and job.archives and not job.sources and not job.new_files and not chown:
            return self.add_files(lambda top: unpack_archives(job, top + job.destination.rstrip("/")))
        with self._scratch() as staging:
            unpacked = []
            if job.archives:
                unpack_archives(job, staging)
                directory = os.open(staging, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                tree = Tree(f"/proc/self/fd/{directory}")
                unpacked.append((tree, TreeFile("", tree.status(""))))

            def copy_files() -> None:
                owner = find_account(chown or "0:0")
                Copier(replace(job, attributes=Attributes(owner, job.attributes.mode))).run()
                kept = Attributes(owner if chown else None, job.attributes.mode)
                if unpacked:
                    Copier(CopyJob(f"{job.destination.rstrip('/')}/", kept, tuple(unpacked))).run()

            try:
                return self._change(state, copy_files)
            finally:
                for tree, _ in unpacked:
                    os.close(int(tree.root.rpartition("/")[2]))

    def copy_from(
        self,
        state: BuildState,
        origin: BuildState,
        find: Callable[[Tree], CopyJob],
        *,
        chown: str,
    ) -> Descriptor | None:
        """Copies what `find` names in the files of another image."""

        def copy_files() -> None:
            job = find(Tree(_ORIGIN))
            owned = replace(job, attributes=Attributes(find_account(chown), job.attributes.mode)) if chown else job
            Copier(owned).run()

        layers = self._directories(origin)

        def show_origin(scratch: str) -> list[Bind]:
            return [Bind(mount_layers(layers, scratch), _ORIGIN)]

        return self._change(state, copy_files, show_origin)

    def _directories(self, state: BuildState) -> list[str]:
        """The directories of the layers, the topmost first."""
        try:
            return [str(path) for path in self._unpacked.directories(state.as_image())] if state.layers else []
        except LayerError as error:
            raise BuildError(f"the image cannot be unpacked: {error}") from error

    def make_working_directory(self, state: BuildState) -> Descriptor | None:
        path, user = state.config.config.working_dir, state.config.config.user

        def make() -> None:
            real = os.path.realpath(path)
            if os.path.lexists(real) and not os.path.isdir(real):
                raise BuildError(f"cannot create the directory {path}: it is a file")
            make_directories(real, find_account(user) if user else None)

        return self._change(state, make)

    def add_files(self, write: Callable[[str], None]) -> Descriptor:
        """Files that `write` writes below a directory are the layer."""
        with self._scratch() as scratch:
            layer = f"{scratch}/layer"
            os.mkdir(layer, 0o755)
            write(layer)
            return self._store_layer(layer)

    def _change(
        self, state: BuildState, change: Callable[[], None], prepare: Prepare | None = None
    ) -> Descriptor | None:
        """Calls `change` inside the root directory of the image."""
        reader, writer = os.pipe()

        def execute() -> None:
            os.umask(0o022)
            try:
                change()
            except (BuildError, PatternError) as error:
                message = str(error)
            except OSError as error:
                message = _os_error(error, state, self._store.directory)
            except RecursionError:
                message = "directories are nested too deeply"
            else:
                return
            os.write(writer, message.encode("utf-8", "replace")[:60_000])
            os._exit(_FAILED)

        with self._scratch() as scratch:
            try:
                status = self._run(state, scratch, execute, prepare)
            finally:
                os.close(writer)
            with os.fdopen(reader, "rb") as pipe:
                message = pipe.read().decode(errors="replace")
            if status:
                raise BuildError(message or f"the process that copies files ended with status {status}")
            return self._gather(state, scratch)

    # RUN

    def run(
        self,
        state: BuildState,
        run: Run,
        arguments: Mapping[str, str],
        container: str,
        mounts: Sequence[RunMount] = (),
        *,
        network: bool = True,
    ) -> tuple[int, Descriptor | None]:
        """Exit code of the command, and what it wrote if that is 0."""
        config = state.config.config
        inherited = self._options.environment if state.uses_host_files else {}
        variables = {"PATH": DEFAULT_PATH, "HOSTNAME": container, **inherited, **arguments, **environment(config)}
        for mount in mounts:
            variables |= mount.variables
        argv, script = command_of(run, shell_of(config))
        # The machine's /root is closed to an ordinary user, who is root here.
        home = str(Path.home()) if state.uses_host_files else "/root"

        def execute() -> None:
            try:
                for mount in mounts:
                    mount.mount_memory()
                if state.uses_host_files:
                    with suppress(OSError):
                        os.makedirs(home, exist_ok=True)  # one in /tmp, where builds have their own files
                account = find_account(config.user) if config.user else Account(0, 0, home=home)
                _execute(argv, script, variables, account, config.working_dir or "/", self._output)
            except (BuildError, OSError, ValueError) as error:  # a zero byte in a variable
                os.write(self._output, f"{error}\n".encode())
            os._exit(_NOT_EXECUTABLE)

        def show_mounts(scratch: str) -> list[Bind]:
            return [bind for mount in mounts for bind in mount.binds(scratch)]

        with self._scratch() as scratch:
            status = self._run(state, scratch, execute, show_mounts, network=network)
            if status:
                return status, None
            return 0, self._gather(state, scratch, [mount.target for mount in mounts if mount.target])

    def mount(self, what: Mount, target: str, context: Tree, origin: BuildState | None) -> RunMount:
        """A mount of RUN; `origin` is the image of `from=`."""
        match what.type:
            case "cache":
                return RunMount(what, target, cache_tree(self._store.directory / "cache-mounts", what, target))
            case "bind" if origin is not None:
                return RunMount(what, target, layers=self._directories(origin))
            case "bind":
                # By its path: a directory of another mount namespace cannot be mounted.
                return RunMount(what, target, replace(context, root=str(self._options.context)))
            case "secret":
                name = what.id or os.path.basename(target)
                if what.required and name not in self._options.secrets:
                    raise BuildError(f"secret {name}: not found; give it to the build with --secret id={name},src=FILE")
                return RunMount(what, target, secret=self._options.secrets.get(name))
            case "ssh":
                name = what.id or DEFAULT_SSH
                if what.required and name not in self._options.ssh:
                    raise BuildError(f"no SSH agent {name}: give it to the build with --ssh {name}")
                return RunMount(what, target, agent=self._options.ssh.get(name, ""))
        return RunMount(what, target)

    def _run(
        self,
        state: BuildState,
        scratch: str,
        execute: Callable[[], None],
        prepare: Prepare | None,
        *,
        network: bool = True,
    ) -> int:
        host_files = state.uses_host_files
        shared = self._shown if host_files else _NETWORK_FILES
        root = ImageRoot(
            layers=self._directories(state),
            scratch=scratch,
            binds=[Bind(path, path) for path in shared if os.path.exists(path)],
            host_files=host_files,
            hidden=self._options.hidden,
            prepare=lambda: prepare(scratch) if prepare else (),
        )
        try:
            status = run_in_image_root(root, execute, network=network)
        except OSError as error:
            raise BuildError(f"cannot make the root directory: {error.strerror or error}") from error
        return os.waitstatus_to_exitcode(status)

    def _gather(self, state: BuildState, scratch: str, mount_points: Sequence[str] = ()) -> Descriptor | None:
        host_files = state.uses_host_files
        layer = gather_layer(
            scratch,
            mount_points=[*mount_points, *(self._shown if host_files else _NETWORK_FILES)],
            # Pods on the host's files see the user's own home.
            dropped=[str(Path.home())] if host_files else (),
        )
        return self._store_layer(layer) if layer else None

    def sync_layers(self) -> None:
        """Returns when the new layers are on the disk."""
        self._built.sync()

    def _store_layer(self, layer: str) -> Descriptor:
        try:
            return self._built.add(layer)
        except OSError as error:
            if is_full(error):
                raise
            raise BuildError(f"cannot write the layer: {error.strerror or error}") from error

    @contextmanager
    def _scratch(self) -> Iterator[str]:
        scratch = tempfile.mkdtemp(prefix="build-", dir=self._store.directory / "tmp")
        try:
            yield scratch
        finally:
            remove_tree(Path(scratch))


def command_of(run: Run, shell: tuple[str, ...]) -> tuple[list[str], str]:
    """The words to execute, and the script to execute in their place if there is one."""
    if not run.heredocs:
        return run.command.argv(shell), ""
    if _SCRIPT.match(run.command.text) and len(run.heredocs) == 1:
        content = run.heredocs[0].content
        return ([], content) if content.startswith("#!") else ([*shell, content], "")
    return [*shell, f"{run.command.text}\n{run.heredoc_text}"], ""


def _execute(
    argv: list[str], script: str, variables: Mapping[str, str], account: Account, directory: str, output: int
) -> None:
    """Replaces this process, which is inside the root directory of the image."""
    null = os.open("/dev/null", os.O_RDONLY)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    if not os.path.isdir(directory):
        make_directories(os.path.realpath(directory), None)
    os.chdir(directory)
    os.setsid()
    security: SecurityJson = {"capabilities": list(CONTAINER_CAPABILITIES), "filtered": True}
    if account.user or account.group:
        security |= {"user": account.user, "group": account.group, "groups": list(account.groups)}
    try:
        restrict_process(security)
    except OSError as error:
        raise BuildError(
            f"cannot become user {account.user}:{account.group}: {error.strerror}; an ordinary user needs ids of "
            "/etc/subuid and the program newuidmap (Debian's package uidmap)"
        ) from error
    values = {"HOME": account.home, **variables}
    if script:
        file = os.memfd_create("script", 0)
        os.write(file, script.encode())
        os.fchmod(file, 0o755)
        candidates, words = [f"/proc/self/fd/{file}"], ["script"]
    elif "/" in argv[0]:
        candidates, words = [argv[0]], argv
    else:
        candidates, words = [f"{directory or '.'}/{argv[0]}" for directory in values["PATH"].split(":")], argv
    found = _NOT_FOUND
    for program in candidates:
        try:
            os.execve(program, words, values)  # noqa: S606 - without a shell
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            os.write(2, f"{program}: {error.strerror}\n".encode())
            found = _NOT_EXECUTABLE
            break
    if found == _NOT_FOUND:
        os.write(2, f"{words[0]}: no such program in the image\n".encode())
    os._exit(found)


def _os_error(error: OSError, state: BuildState, directory: Path) -> str:
    if is_full(error):
        return str(disk_error(directory, error))
    where = f": {error.filename}" if error.filename else ""
    hint = ""
    if isinstance(error, PermissionError) and state.uses_host_files:
        hint = "; an ordinary user can add files only to directories that the image has made itself, /opt and /var"
    return f"{error.strerror or error}{where}{hint}"


_KERNEL_DIRECTORIES = ("proc", "sys", "dev")


def gather_layer(scratch: str, *, mount_points: Iterable[str] = (), dropped: Iterable[str] = ()) -> str | None:
    """The directory with what was written below `scratch`; None if nothing was.

    `mount_points` are files that exist in the layer only because something was mounted there; `dropped` are paths that
    are no part of it.
    """
    uppers = written(scratch)
    if [path for _, path in uppers] == ["/"]:
        layer = uppers[0][0]
    else:
        layer = f"{scratch}/layer"
        os.mkdir(layer, 0o755)
        for upper, path in uppers:
            if os.listdir(upper):
                os.makedirs(os.path.dirname(layer + path), exist_ok=True)
                _move(upper, layer + path)
    for name in _KERNEL_DIRECTORIES:
        _remove_empty(f"{layer}/{name}")
    for point in mount_points:
        _remove_mount_point(layer, point)
    for path in dropped:
        if os.path.isdir(layer + path) and not os.path.islink(layer + path):
            shutil.rmtree(layer + path)
            _remove_empty_parents(layer, path)
    return layer if os.listdir(layer) else None


def _move(source: str, target: str) -> None:
    """Merges a directory with one that is there: one may lie below another that was written too."""
    if os.path.isdir(source) and not os.path.islink(source) and os.path.isdir(target):
        for name in os.listdir(source):
            _move(f"{source}/{name}", f"{target}/{name}")
    else:
        os.rename(source, target)


def _remove_mount_point(layer: str, point: str) -> None:
    path = layer + point
    try:
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            os.unlink(path)
        elif stat.S_ISDIR(status.st_mode):
            os.rmdir(path)
        else:
            return
    except OSError:
        return
    _remove_empty_parents(layer, point)


def _remove_empty_parents(layer: str, path: str) -> None:
    parent = os.path.dirname(path)
    while parent != "/" and _remove_empty(layer + parent):
        parent = os.path.dirname(parent)


def _remove_empty(path: str) -> bool:
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True
