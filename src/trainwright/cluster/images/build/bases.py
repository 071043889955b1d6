"""The image that FROM names: from the store, else pulled, else the files of this machine."""

import platform

from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.build.configuration import DEFAULT_PATH, environment, set_environment
from trainwright.cluster.images.build.host_python import PREFIX, PYTHON_LABEL, HostPython, describe_python
from trainwright.cluster.images.build.messages import BuildError, system_name
from trainwright.cluster.images.build.options import BuildOptions, Pull, Unreachable
from trainwright.cluster.images.build.state import BuildState, cache_key
from trainwright.cluster.images.formats import HOST_FILES_LABEL, FormatError, ImageConfig, Platform
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError
from trainwright.cluster.images.store import Image, ImageStore

SCRATCH = "scratch"


class Bases:
    """Finds images before the build begins: registries are asked by a process that is not root of containers."""

    def __init__(self, store: ImageStore, options: BuildOptions, pull: Pull) -> None:
        self._store = store
        self._options = options
        self._pull = pull
        self.python: HostPython | None = None
        """That of the host's files, once a FROM means them."""

    def find(self, name: str, platform_text: str) -> BuildState:
        """For FROM: an image that cannot be had becomes the files of this machine."""
        wanted = self._platform(platform_text)
        if name == SCRATCH:
            return empty_state(wanted)
        found = self._find_image(name, wanted)
        if isinstance(found, Unreachable):
            return self._host_files(name, wanted, found)
        return state_of(found, name)

    def find_files(self, name: str) -> BuildState:
        """For --from: the files must be those of the image."""
        found = self._find_image(name, self._options.platform)
        if isinstance(found, Unreachable):
            raise BuildError(f"{name} is neither a stage nor an image of the store, and {found.cause}")
        return state_of(found, name)

    def _find_image(self, name: str, wanted: Platform) -> Image | Unreachable:
        try:
            reference = ImageReference.parse(name)
            found = self._store.find(name)
        except InvalidReferenceError as error:
            raise BuildError(str(error)) from error
        except (StoreError, FormatError) as error:
            raise BuildError(f"{name} of the store cannot be used: {error}") from error
        is_here = found and (found.config.platform.architecture or wanted.architecture) == wanted.architecture
        if found and is_here and not self._options.pull:
            return found
        pulled = self._pull(reference, wanted)
        if is_here and isinstance(pulled, Unreachable):
            raise BuildError(f"{pulled.cause}; without --pull the image of the store would be used")
        return pulled

    def _platform(self, text: str) -> Platform:
        try:
            return Platform.parse(text) if text else self._options.platform
        except FormatError as error:
            raise BuildError(str(error)) from error

    def _host_files(self, name: str, wanted: Platform, missing: Unreachable) -> BuildState:
        here = Platform.of_this_machine()
        if self._options.strict:
            raise BuildError(
                f"{name} is not in the store, and {missing.cause}; "
                "without --strict the files of this machine would stand in for it"
            )
        if (wanted.os, wanted.architecture) != (here.os, here.architecture):
            raise BuildError(
                f"{name} for {wanted} is not in the store, and {missing.cause}; "
                f"the files of this machine, {here}, cannot stand in for it"
            )
        state = empty_state(here)
        config = state.config.config
        config.labels = {HOST_FILES_LABEL: "true"}
        state.origin = name
        identity: list[object] = [name, here_name()]
        if self._options.python is not None:
            python = self.python = describe_python(self._options.python)
            scripts = [] if python.scripts in DEFAULT_PATH.split(":") else [python.scripts]
            set_environment(config, {"PATH": ":".join([f"{PREFIX}/bin", *scripts, DEFAULT_PATH])})
            config.labels = config.labels | {PYTHON_LABEL: python.path}
            identity += python.identity
        state.key = cache_key("host files", *identity)
        state.missing_base = missing.cause
        return state


def empty_state(wanted: Platform) -> BuildState:
    config = ImageConfig(architecture=wanted.architecture, os=wanted.os, variant=wanted.variant)
    return _with_path(BuildState(config, [], cache_key(SCRATCH, str(wanted)), origin=SCRATCH))


def state_of(image: Image, name: str) -> BuildState:
    state = BuildState(image.config, list(image.manifest.layers), cache_key("image", image.id), origin=name)
    return _with_path(state.next_stage())


def _with_path(state: BuildState) -> BuildState:
    """As Docker, so that `ENV PATH=/opt/bin:$PATH` means what it says on an image without the variable."""
    if "PATH" not in environment(state.config.config):
        set_environment(state.config.config, {"PATH": DEFAULT_PATH})
        state.key = cache_key(state.key, DEFAULT_PATH)
    return state


def here_name() -> str:
    """This machine's distribution."""
    try:
        return system_name(platform.freedesktop_os_release())
    except OSError:
        return "Linux"
