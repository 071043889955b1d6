"""A Python program as `run` and `init` find it: its file, the modules beside it that it imports, its framework.

Nothing is executed: imports are read from the source by `ast`.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.reader import is_unicode
from trainwright.cli.spelling import nearest

SUFFIX = ".py"
DEFAULT_FRAMEWORK = "pytorch"
_FRAMEWORKS: Mapping[str, tuple[str, ...]] = {
    "mpi": ("mpi4py", "horovod"),
    "pytorch": (
        "torch", "lightning", "pytorch_lightning", "lightning_fabric", "accelerate", "transformers", "deepspeed",
    ),
    "tensorflow": ("tensorflow", "keras", "tf_keras"),
    "jax": ("jax", "flax", "optax"),
    "paddle": ("paddle",),
    "xgboost": ("xgboost",),
}  # fmt: skip
"""By framework, the top-level modules that show it. The first framework wins: a program with torch and xgboost, or
with torch and tensorflow's event files, trains with torch; one with mpi4py needs mpirun whatever else it imports."""
_LAUNCHERS = frozenset({"lightning", "pytorch_lightning", "lightning_fabric"})
_MAX_FILES = 1000
_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """`name` is what the user wrote: a path, or the name of a module (`python -m`)."""

    name: str
    root: Path
    """The directory that Python adds to sys.path: that of the file, or the working directory of a module."""
    file: Path | None
    """None for a module that is not below `root`, such as an installed one."""
    is_module: bool = False
    arguments: tuple[str, ...] = ()

    def sources(self) -> dict[Path, bytes]:
        """The program and the modules below `root` that it imports, directly or not, by path relative to `root`."""
        return {path: text for path, text, _ in _walk(self)}


@dataclass(frozen=True, slots=True)
class FrameworkGuess:
    framework: str
    module: str | None
    """The imported module that shows it; None if no known framework is imported."""
    starts_processes: bool = False
    """Whether the program starts its processes of one node itself, as Lightning does."""


def find_file(name: str, arguments: tuple[str, ...] = ()) -> Program:
    """The program of `run train.py`; a CommandError says what is wrong with the path."""
    _check_text(name, *arguments)
    path = Path(name)
    if path.is_dir():
        raise CommandError(f"{name} is a directory: name the program in it, such as {path / 'train.py'}")
    if not path.exists():
        here = path.parent
        others = [file.name for file in here.glob(f"*{SUFFIX}")] if here.is_dir() else []
        near = nearest(path.name, others)
        hint = f": did you mean {here / near}?" if near else f" (looked in {here.absolute()})"
        raise CommandError(f"{name} does not exist{hint}")
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise CommandError(f"failed to read {name}: {error.strerror}") from error
    # The link itself is kept, but Python resolves it for sys.path[0].
    return Program(name, path.resolve().parent, path.absolute(), arguments=arguments)


def find_module(name: str, directory: Path, arguments: tuple[str, ...] = ()) -> Program:
    """The program of `run -m package.module`, as `python -m` would find it in `directory`."""
    _check_text(*arguments)
    if not all(part.isidentifier() for part in name.split(".")):
        raise CommandError(f"-m {name}: not the name of a module; write package.module, without {SUFFIX}")
    base = directory.joinpath(*name.split("."))
    files = (base.with_name(base.name + SUFFIX), base / f"__main__{SUFFIX}")
    return Program(name, directory, next((file for file in files if file.is_file()), None), True, arguments)


def _check_text(*words: str) -> None:
    for word in words:
        if not is_unicode(word):
            raise CommandError(f"{word!r} is not UTF-8 text: a job cannot contain it")


def guess_framework(program: Program, chosen: str | None = None) -> FrameworkGuess:
    """By what the program and its own modules import; PyTorch if nothing is recognised. `chosen` replaces the guess."""
    guess = _guess_framework(program)
    return replace(guess, framework=chosen) if chosen else guess


def _guess_framework(program: Program) -> FrameworkGuess:
    imported = {name.partition(".")[0] for _, _, names in _walk(program) for name in names}
    starts_processes = not imported.isdisjoint(_LAUNCHERS)
    for framework, modules in _FRAMEWORKS.items():
        for module in modules:
            if module in imported:
                return FrameworkGuess(framework, module, starts_processes)
    if program.is_module and (top := program.name.partition(".")[0]):
        for framework, modules in _FRAMEWORKS.items():
            if top in modules:
                return FrameworkGuess(framework, top)
    return FrameworkGuess(DEFAULT_FRAMEWORK, None)


# Imports


def _walk(program: Program) -> Iterator[tuple[Path, bytes, set[str]]]:
    """Path, source and imported names of the program's files. Bounded: a huge tree must not delay `run`."""
    waiting = [program.file.resolve()] if program.file else []
    if program.file and program.is_module:
        waiting += _files(program.root, program.name)
    seen: set[Path] = set()
    size = 0
    while waiting and len(seen) < _MAX_FILES and size < _MAX_BYTES:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen.add(file)
        try:
            text, path = file.read_bytes(), file.relative_to(program.root.resolve())
        except (OSError, ValueError):
            continue
        size += len(text)
        names = _imports(text, path)
        waiting += [found for name in names for found in _files(program.root, name)]
        yield path, text, names


def _imports(text: bytes, path: Path) -> set[str]:
    """The absolute names of all imports in a file, in functions too; none if this Python cannot parse it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set()  # the pod's Python may be newer than this one, and reports real errors better
    package = path.parts[:-1]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            if module:
                names.add(module)
            names |= {f"{module}.{alias.name}" if module else alias.name for alias in node.names if alias.name != "*"}
    return names


def _files(root: Path, name: str) -> Iterator[Path]:
    """The files that importing a dotted name executes, as far as they are below `root`."""
    here = root.resolve()
    for part in name.split("."):
        if (init := here / part / f"__init__{SUFFIX}").is_file():
            yield init
        elif (file := here / f"{part}{SUFFIX}").is_file():
            yield file
            return
        here = here / part
        if not here.is_dir():
            return
