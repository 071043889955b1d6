"""The instructions of a Dockerfile as values, with variables not yet expanded."""

from dataclasses import dataclass, field

from trainwright.cluster.images.dockerfile.lines import Heredoc
from trainwright.objects.decimals import parse_decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    keyword: str
    source: str
    """As written, in one line."""
    line: int
    column: int = 1


@dataclass(frozen=True, slots=True)
class Command:
    """What RUN, CMD and ENTRYPOINT name."""

    words: tuple[str, ...]
    """One word for the shell, or the words of an exec form."""
    uses_shell: bool

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def argv(self, shell: tuple[str, ...]) -> list[str]:
        return [*shell, *self.words] if self.uses_shell else list(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class From(Instruction):
    image: str
    platform: str = ""
    alias: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """`RUN --mount`."""

    type: str = "bind"
    target: str = ""
    source: str = ""
    origin: str = ""
    """The stage or image of `from=`."""
    id: str = ""
    read_only: bool = True
    required: bool = False
    mode: int | None = None
    user: int = 0
    group: int = 0
    size: str = ""
    """The size of a tmpfs, as mount(8) reads it."""
    variable: str = ""
    """The variable that has a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Instruction):
    command: Command
    heredocs: tuple[Heredoc, ...] = ()
    heredoc_text: str = ""
    """The lines of its here-documents as written."""
    mounts: tuple[Mount, ...] = ()
    network: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(Instruction):
    """COPY and ADD."""

    sources: tuple[str, ...]
    destination: str
    heredocs: tuple[Heredoc, ...] = ()
    """In place of the sources of the form `<<NAME`, by name."""
    origin: str = ""
    """The stage or image of `--from`."""
    chown: str = ""
    chmod: str = ""
    checksum: str = ""
    excludes: tuple[str, ...] = ()
    parents: bool = False
    unpack: bool | None = None
    """Whether ADD unpacks archives; None: local ones, not those from an address."""

    @property
    def is_add(self) -> bool:
        return self.keyword == "ADD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs(Instruction):
    """ENV and LABEL."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arg(Instruction):
    arguments: tuple[tuple[str, str | None], ...]
    """Names with defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words(Instruction):
    """EXPOSE and VOLUME."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value(Instruction):
    """WORKDIR, USER, STOPSIGNAL and MAINTAINER."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Instruction):
    """CMD and ENTRYPOINT."""

    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell(Instruction):
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored(Instruction):
    """HEALTHCHECK and ONBUILD."""


@dataclass(frozen=True, slots=True)
class Stage:
    origin: From
    instructions: tuple[Instruction, ...]
    index: int

    @property
    def name(self) -> str:
        return self.origin.alias or str(self.index)


@dataclass(frozen=True, slots=True)
class Dockerfile:
    arguments: tuple[Arg, ...]
    """Before the first FROM."""
    stages: tuple[Stage, ...]
    escape: str = "\\"
    warnings: list[str] = field(default_factory=list)

    def stage(self, name: str) -> Stage | None:
        """The stage with this name or index; the last of several."""
        by_name = [stage for stage in self.stages if stage.origin.alias == name.lower()]
        if by_name:
            return by_name[-1]
        number = parse_decimal(name)
        return self.stages[number] if number is not None and number < len(self.stages) else None
