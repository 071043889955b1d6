"""Builds an image: the instructions of the stages that the target needs, one after the other, each from the cache if
nothing that it depends on has changed."""

import datetime
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from trainwright.cluster.images.blobs import disk_error, is_full
from trainwright.cluster.images.build.bases import Bases, here_name
from trainwright.cluster.images.build.configuration import (
    Configurator,
    absolute_path,
    check_size,
    environment,
    shell_of,
)
from trainwright.cluster.images.build.files.context import Context, copy_job
from trainwright.cluster.images.build.host_python import HostPython, python_files, write_files
from trainwright.cluster.images.build.messages import BuildError, Progress, explain_host_failure
from trainwright.cluster.images.build.options import BuildOptions
from trainwright.cluster.images.build.run_mounts import RunMount
from trainwright.cluster.images.build.state import BuildCache, BuildState, CacheEntry, cache_key
from trainwright.cluster.images.build.steps import Steps, command_of
from trainwright.cluster.images.dockerfile.ignore import PatternError
from trainwright.cluster.images.dockerfile.instructions import (
    Arg,
    Copy,
    Dockerfile,
    From,
    Ignored,
    Instruction,
    Mount,
    Pairs,
    Run,
    Stage,
    Start,
    Value,
)
from trainwright.cluster.images.dockerfile.words import ExpansionError, expand
from trainwright.cluster.images.formats import SKIPPED_LABEL, Descriptor, ImageConfig, Platform
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.objects.decimals import parse_decimal

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
PREDEFINED_ARGUMENTS = frozenset((*_PROXIES, *(name.lower() for name in _PROXIES)))
"""Programs get them without ARG, and they change no key of the cache."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known before the first step: the stages that are built, and the images that they need."""

    dockerfile: Dockerfile
    stages: tuple[Stage, ...]
    bases: Mapping[int, BuildState]
    """The images with which stages begin, by the index of the stage."""
    images: Mapping[str, BuildState]
    """Images that --from names."""
    arguments: Mapping[str, str]
    """Values of ARGs before the first FROM, and of those for the platform."""
    python: HostPython | None


def make_plan(dockerfile: Dockerfile, options: BuildOptions, bases: Bases) -> Plan:
    """Finds the images, which may take long and ask registries."""
    arguments = _global_arguments(dockerfile, options)
    target = dockerfile.stage(options.target) if options.target else dockerfile.stages[-1]
    if target is None:
        names = ", ".join(stage.name for stage in dockerfile.stages)
        raise BuildError(f"the target stage {options.target!r} is not in the Dockerfile; its stages are {names}")
    target = _with_labels(target, options.labels, dockerfile.escape)
    needed: dict[int, Stage] = {}
    found: dict[int, BuildState] = {}
    images: dict[str, BuildState] = {}
    pending = [target]
    while pending:
        stage = pending.pop()
        if stage.index in needed:
            continue
        needed[stage.index] = stage
        for instruction, name in _names(stage, arguments, dockerfile.escape, options):
            earlier = _earlier_stage(dockerfile, name, stage)
            if earlier is not None:
                pending.append(earlier)
                continue
            try:
                if isinstance(instruction, From):
                    wanted = expand(instruction.platform, arguments, dockerfile.escape)
                    found[stage.index] = bases.find(name, wanted)
                elif name not in images:
                    images[name] = bases.find_files(name)
            except (BuildError, ExpansionError) as error:
                raise _at(options, instruction, str(error)) from error
    stages = tuple(needed[index] for index in sorted(needed))
    return Plan(dockerfile, stages, found, images, arguments, bases.python)


def _with_labels(stage: Stage, labels: Mapping[str, str], escape: str) -> Stage:
    """As Docker's classic builder: one more step. The values are not expanded."""
    if not labels:
        return stage
    pairs = tuple(
        (name, "".join(f"{escape}{letter}" if letter in f"$'\"{escape}" else letter for letter in value))
        for name, value in labels.items()
    )
    source = " ".join(["LABEL", *(f"{name}={value}" for name, value in labels.items())])
    label = Pairs(keyword="LABEL", source=source, line=stage.origin.line, pairs=pairs)
    return replace(stage, instructions=(*stage.instructions, label))


def _names(
    stage: Stage, arguments: Mapping[str, str], escape: str, options: BuildOptions
) -> Iterator[tuple[Instruction, str]]:
    """The stages and images that a stage needs, with the instructions that name them."""
    try:
        name = expand(stage.origin.image, arguments, escape)
    except ExpansionError as error:
        raise _at(options, stage.origin, str(error)) from error
    if not name:
        cause = f"base name ({stage.origin.image}) should not be blank"
        raise _at(options, stage.origin, f"{cause}: give it with --build-arg, or the ARG before FROM a default")
    yield stage.origin, name
    for instruction in stage.instructions:
        for origin in _origins(instruction):
            yield instruction, origin


class Builder:
    """Runs as the root of containers, see `layers.namespace`, with a lease of the store."""

    def __init__(
        self, store: ImageStore, options: BuildOptions, plan: Plan, context: Context, progress: Progress, output: int
    ) -> None:
        self._store = store
        self._options = options
        self._plan = plan
        self._context = context
        self._progress = progress
        self._output = output
        self._steps = Steps(store, options, output, plan.python.directories if plan.python else ())
        self._cache = BuildCache(store)
        self._states: dict[int, BuildState] = {}
        self._number = 0
        self._count = sum(1 + len(stage.instructions) for stage in plan.stages)
        self._is_cached = True
        """False as soon as one step was not in the cache: those after it are not either."""

    def build(self) -> Image:
        for warning in self._plan.dockerfile.warnings:
            self._progress.warning(warning)
        for stage in self._plan.stages:
            self._states[stage.index] = self._build_stage(stage)
        state = self._states[self._plan.stages[-1].index]
        self._steps.sync_layers()
        image = self._store_image(state)
        self._progress.print(f"Successfully built {state.short_id}")
        for tag in self._options.tags:
            self._progress.print(f"Successfully tagged {tag.familiar}")
        self._cache.trim()
        return image

    def _store_image(self, state: BuildState) -> Image:
        image = state.as_image()
        stored = image
        for tag in self._options.tags or (None,):
            present = self._store.find(image.id if tag is None else tag)
            if present is None or present.id != image.id:
                stored = self._store.add_image(image.manifest.encode(), state.config.encode(), reference=tag)
        return stored

    def _build_stage(self, stage: Stage) -> BuildState:
        origin = stage.origin
        self._begin(origin)
        base = self._plan.bases.get(stage.index)
        if base is None:
            name = expand(origin.image, self._plan.arguments, self._plan.dockerfile.escape)
            earlier = _earlier_stage(self._plan.dockerfile, name, stage)
            assert earlier is not None  # noqa: S101 - the plan has found it
            base = self._states[earlier.index]
        state = base.next_stage()
        if state.missing_base:
            self._use_host_files(origin, state)
        if state.layers or state.config.history or state.uses_host_files:
            self._progress.print(f" ---> {state.short_id}")
        else:
            self._progress.print(" --->")
        state.cmd_is_set = False
        for instruction in stage.instructions:
            self._begin(instruction)
            try:
                state = self._step(state, instruction, stage)
            except (BuildError, ExpansionError, PatternError) as error:
                raise _at(self._options, instruction, str(error)) from error
            except OSError as error:
                if is_full(error):
                    raise disk_error(self._store.directory, error) from error
                named = f": {error.filename}" if error.filename else ""
                raise _at(self._options, instruction, f"{error.strerror or error}{named}") from error
            self._progress.print(f" ---> {state.short_id}")
        return state

    def _begin(self, instruction: Instruction) -> None:
        self._number += 1
        self._progress.print(f"Step {self._number}/{self._count} : {instruction.source}")

    # The host's files

    def _use_host_files(self, origin: Instruction, state: BuildState) -> None:
        self._progress.print(
            f"{state.origin} is not in the store, and {state.missing_base}: "
            f"the files of this machine ({here_name()}) stand in for it"
        )
        python = self._plan.python
        if python is None:
            return
        try:
            files = python_files(python)
            key = cache_key(state.key, "python", sorted(files))
            if not self._restore(state, key):
                layer = self._steps.add_files(lambda top: write_files(files, top))
                self._finish(state, key, f"the Python of {python.path}", layer)
        except BuildError as error:
            raise _at(self._options, origin, str(error)) from error
        self._progress.print(f"python and pip are those of {python.path} (Python {python.version})")
        if not python.pip and not python.wheel:
            self._progress.warning(f"{python.path} has no pip: RUN lines with pip fail; choose another with --python")

    # One instruction

    def _step(self, state: BuildState, instruction: Instruction, stage: Stage) -> BuildState:
        after = replace(
            state,
            config=state.config_copy(),
            layers=list(state.layers),
            arguments=dict(state.arguments),
            missing_base="",
        )
        match instruction:
            case Run():
                self._run(after, instruction, stage)
            case Copy():
                self._copy(after, instruction, stage)
            case Arg():
                self._declare(after, instruction)
            case Ignored():
                self._progress.print(" ---> Ignored")
            case _:
                self._configure(after, instruction)
        return after

    def _variables(self, state: BuildState) -> dict[str, str]:
        """ENV comes before ARG."""
        return {**state.arguments, **environment(state.config.config)}

    def _declare(self, state: BuildState, instruction: Arg) -> None:
        for name, default in instruction.arguments:
            name = expand(name, self._variables(state), self._plan.dockerfile.escape)  # noqa: PLW2901
            if name in self._options.build_args:
                state.arguments[name] = self._options.build_args[name]
            elif default is not None:
                value = expand(default, self._variables(state), self._plan.dockerfile.escape)
                check_size(state.arguments, {name: value})
                state.arguments[name] = value
            elif name in self._plan.arguments:
                state.arguments[name] = self._plan.arguments[name]
        key = cache_key(state.key, "ARG", sorted(name for name, _ in instruction.arguments))
        self._change_config(state, key, f"/bin/sh -c #(nop)  {instruction.source}")

    def _configure(self, state: BuildState, instruction: Instruction) -> None:
        configurator = Configurator(state.config.config, self._variables(state), self._plan.dockerfile.escape)
        if isinstance(instruction, Value) and instruction.keyword == "MAINTAINER":
            state.config.author = instruction.value
        text = configurator.apply(instruction, cmd_is_set=state.cmd_is_set)
        if isinstance(instruction, Start) and instruction.keyword == "CMD":
            state.cmd_is_set = True
        key = cache_key(state.key, instruction.keyword, text)
        makes_directory = isinstance(instruction, Value) and instruction.keyword == "WORKDIR"
        self._change_config(
            state, key, f"/bin/sh -c #(nop) {instruction.keyword} {text}", makes_directory=makes_directory
        )

    def _change_config(self, state: BuildState, key: str, created_by: str, *, makes_directory: bool = False) -> None:
        if self._uses_cache(state, key):
            return
        with self._container():
            layer = self._steps.make_working_directory(state) if makes_directory else None
            self._finish(state, key, created_by, layer)

    def _run(self, state: BuildState, run: Run, stage: Stage) -> None:
        command = run.command.text if not run.heredocs else f"{run.command.text}\n{run.heredoc_text}"
        if self._options.skips(run.command.text):
            self._skip(state, run.command.text)
            return
        predefined = {name: value for name, value in self._options.build_args.items() if name in PREDEFINED_ARGUMENTS}
        argv, script = command_of(run, shell_of(state.config.config))
        declared = [f"{name}={value}" for name, value in sorted(state.arguments.items())]
        prefix = "".join(f"{text} " for text in ([f"|{len(declared)}", *declared] if declared else []))
        created_by = prefix + (script or " ".join(argv))
        mounts = [
            (mount.type, mount.target, mount.source, mount.id, mount.variable, self._mount_key(mount, stage))
            for mount in run.mounts
        ]
        network = self._options.network if run.network == "default" else run.network
        key = cache_key(state.key, "RUN", argv, script, declared, mounts, network)
        if self._uses_cache(state, key):
            return
        with self._container() as container:
            attached = self._mounts(state, run, stage)
            status, layer = self._steps.run(
                state, run, {**predefined, **state.arguments}, container, attached, network=network != "none"
            )
            if status:
                raise BuildError(self._failure(state, run, command, status))
            self._finish(state, key, created_by, layer)

    def _mounts(self, state: BuildState, run: Run, stage: Stage) -> list[RunMount]:
        found: list[RunMount] = []
        for mount in run.mounts:
            target = expand(mount.target, self._variables(state))
            if mount.type == "secret" and not target and not mount.variable:
                target = f"/run/secrets/{mount.id}"
            elif mount.type == "ssh" and not target:
                target = f"/run/buildkit/ssh_agent.{len(found)}"
            path = absolute_path(state.config.config, target).rstrip("/") if target else ""
            origin = self._origin(mount.origin, stage) if mount.origin else None
            found.append(self._steps.mount(mount, path, self._context.tree, origin))
            if mount.type == "ssh" and not self._options.ssh:
                self._progress.warning("--mount=type=ssh is absent: --ssh default gives the build your SSH agent")
        return found

    def _failure(self, state: BuildState, run: Run, command: str, status: int) -> str:
        shown = " ".join(run.command.argv(shell_of(state.config.config)))
        text = (
            f"the command '{shown}' returned a non-zero code: {status}"
            if status > 0
            else (f"the command '{shown}' was killed by signal {-status}")
        )
        if state.uses_host_files:
            cause = explain_host_failure(
                command, status, is_root=self._options.is_root, system=here_name(), base=state.origin
            )
            return f"{text}: {cause}"
        return text

    def _skip(self, state: BuildState, command: str) -> None:
        self._progress.print(" ---> Skipped by --skip-run")
        labels = state.config.config.labels
        skipped = [*json.loads(labels.get(SKIPPED_LABEL, "[]")), " ".join(command.split())]
        state.config.config.labels = labels | {SKIPPED_LABEL: json.dumps(skipped)}
        key = cache_key(state.key, "skipped", command)
        if not self._restore(state, key):
            self._finish(state, key, f"/bin/sh -c #(nop) skipped: {command}", None)

    def _copy(self, state: BuildState, copy: Copy, stage: Stage) -> None:
        variables = self._variables(state)
        escape = self._plan.dockerfile.escape
        chown = expand(copy.chown, variables, escape)
        sources = [expand(source, variables, escape) for source in copy.sources]
        destination = absolute_path(state.config.config, expand(copy.destination, variables, escape))
        job = copy_job(copy, sources, destination, mode=_mode(expand(copy.chmod, variables, escape)))
        settings = [copy.keyword, sources, destination, chown, copy.chmod, copy.parents, copy.excludes, copy.unpack]
        if copy.origin:
            origin = self._origin(copy.origin, stage)
            key = cache_key(state.key, *settings, origin.key)
            if self._uses_cache(state, key):
                return
            layer = self._steps.copy_from(state, origin, job.in_tree, chown=chown)
        else:
            with closing(self._context.read(copy, sources, job, variables)) as found:
                key = cache_key(state.key, *settings, found.digest)
                if self._uses_cache(state, key):
                    return
                layer = self._steps.copy(state, found.job, chown=chown)
        text = f"{copy.keyword} {' '.join(sources)} in {destination}"
        self._finish(state, key, f"/bin/sh -c #(nop) {text}", layer)

    def _origin(self, name: str, stage: Stage) -> BuildState:
        earlier = _earlier_stage(self._plan.dockerfile, name, stage)
        return self._states[earlier.index] if earlier is not None else self._plan.images[name]

    def _mount_key(self, mount: Mount, stage: Stage) -> str:
        """What the command sees there; caches and secrets do not count."""
        if mount.origin:
            return self._origin(mount.origin, stage).key
        return self._context.digest(mount.source) if mount.type == "bind" else ""

    @contextmanager
    def _container(self) -> Iterator[str]:
        container = os.urandom(6).hex()
        self._progress.print(f" ---> Running in {container}")
        yield container
        self._progress.print(f"Removing intermediate container {container}")

    # Cache

    def _uses_cache(self, state: BuildState, key: str) -> bool:
        found = self._restore(state, key)
        if found:
            self._progress.print(" ---> Using cache")
        return found

    def _restore(self, state: BuildState, key: str) -> bool:
        """Replaces the state by what the cache has for the key."""
        state.key = key
        if self._options.no_cache or not self._is_cached:
            return False
        entry = self._cache.find(key)
        if entry is None:
            self._is_cached = False
            return False
        state.config = ImageConfig.decode(entry.config)
        state.layers = list(entry.layers)
        return True

    def _finish(self, state: BuildState, key: str, created_by: str, layer: Descriptor | None) -> None:
        if layer is not None:
            state.add_layer(layer)
        now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        state.add_history(self._options.created or now, created_by, empty_layer=layer is None)
        state.key = key
        self._cache.add(key, CacheEntry(config=state.config.encode(), layers=state.layers))


def _global_arguments(dockerfile: Dockerfile, options: BuildOptions) -> dict[str, str]:
    target, here = options.platform, Platform.of_this_machine()
    found = {
        "TARGETPLATFORM": str(target),
        "TARGETOS": target.os,
        "TARGETARCH": target.architecture,
        "TARGETVARIANT": target.variant,
        "BUILDPLATFORM": str(here),
        "BUILDOS": here.os,
        "BUILDARCH": here.architecture,
        "BUILDVARIANT": here.variant,
    }
    for instruction in dockerfile.arguments:
        for name, default in instruction.arguments:
            try:
                if name in options.build_args:
                    found[name] = options.build_args[name]
                elif default is not None:
                    value = expand(default, found, dockerfile.escape)
                    check_size(found, {name: value})
                    found[name] = value
            except (ExpansionError, BuildError) as error:
                raise _at(options, instruction, str(error)) from error
    return found


def unused_arguments(dockerfile: Dockerfile, options: BuildOptions) -> list[str]:
    """Build arguments that no ARG declares."""
    every = [*dockerfile.arguments, *(instruction for stage in dockerfile.stages for instruction in stage.instructions)]
    declared = {name for instruction in every if isinstance(instruction, Arg) for name, _ in instruction.arguments}
    return sorted(set(options.build_args) - declared - PREDEFINED_ARGUMENTS)


def _earlier_stage(dockerfile: Dockerfile, name: str, stage: Stage) -> Stage | None:
    """The stage of this name or number before another one."""
    before = [earlier for earlier in dockerfile.stages[: stage.index] if earlier.origin.alias == name.lower()]
    if before:
        return before[-1]
    number = parse_decimal(name)
    return dockerfile.stages[number] if number is not None and number < stage.index else None


def _origins(instruction: Instruction) -> list[str]:
    if isinstance(instruction, Copy):
        return [instruction.origin] if instruction.origin else []
    if isinstance(instruction, Run):
        return [mount.origin for mount in instruction.mounts if mount.origin]
    return []


def _mode(text: str) -> int | None:
    if not text:
        return None
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise BuildError(f"invalid chmod parameter: {text!r}: it should be octal, between 0 and 07777")
    return mode


def _at(options: BuildOptions, instruction: Instruction, message: str) -> BuildError:
    place = f"{options.dockerfile.name}:{instruction.line}:{instruction.column}"
    source = instruction.source if len(instruction.source) <= 200 else f"{instruction.source[:200]}…"
    return BuildError(f"{place}: {source}: {message}")
