"""What an instruction changes in the configuration of the image. Pure."""

import posixpath
import re
import signal
from collections.abc import Mapping

from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.dockerfile.instructions import Instruction, Pairs, Shell, Start, Value, Words
from trainwright.cluster.images.dockerfile.words import expand, expand_words
from trainwright.cluster.images.formats import RunConfig

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MAX_CHARACTERS = 2 * 1024 * 1024
DEFAULT_SHELL = ("/bin/sh", "-c")
_PORT = re.compile(r"^(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp|sctp))?$", re.IGNORECASE)
_REAL_TIME_SIGNAL = re.compile(r"SIGRT(?:MIN(?:\+\d{1,2})?|MAX(?:-\d{1,2})?)")


def environment(config: RunConfig) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in config.env)


def set_environment(config: RunConfig, changes: Mapping[str, str]) -> None:
    config.env = [f"{name}={value}" for name, value in {**environment(config), **changes}.items()]


def shell_of(config: RunConfig) -> tuple[str, ...]:
    return tuple(config.shell or DEFAULT_SHELL)


def absolute_path(config: RunConfig, path: str) -> str:
    """Relative paths begin at WORKDIR. A trailing slash is kept: COPY gives it a meaning."""
    joined = posixpath.join(config.working_dir or "/", path)
    cleaned = "/" + posixpath.normpath(joined).lstrip("/")
    return cleaned + "/" if joined.endswith(("/", "/.")) and cleaned != "/" else cleaned


class Configurator:
    """Applies instructions that change nothing but the configuration; the text is what `history` shows."""

    def __init__(self, config: RunConfig, variables: Mapping[str, str], escape: str) -> None:
        self._config = config
        self._variables = variables
        self._escape = escape

    def apply(self, instruction: Instruction, *, cmd_is_set: bool) -> str:
        """`cmd_is_set`: this Dockerfile has set CMD already, so that ENTRYPOINT keeps it."""
        config = self._config
        match instruction:
            case Pairs():
                pairs = {self._expand(name): self._expand(value) for name, value in instruction.pairs}
                if instruction.keyword == "ENV":
                    check_size(self._variables, pairs)
                    set_environment(config, pairs)
                else:
                    check_size(config.labels, pairs)
                    config.labels = config.labels | pairs
                return " ".join(f"{name}={value}" for name, value in pairs.items())
            case Value(keyword="USER"):
                config.user = self._required(instruction)
                return config.user
            case Value(keyword="WORKDIR"):
                config.working_dir = absolute_path(config, self._required(instruction)).rstrip("/") or "/"
                return config.working_dir
            case Value(keyword="STOPSIGNAL"):
                config.stop_signal = _signal(self._required(instruction))
                return config.stop_signal
            case Words(keyword="EXPOSE"):
                ports = [port for word in instruction.words for port in self._ports(word)]
                config.exposed_ports = config.exposed_ports | {port: {} for port in ports}
                return " ".join(ports)
            case Words():
                paths = [self._expand(word) for word in instruction.words]
                config.volumes = config.volumes | {path: {} for path in paths}
                return str(paths).replace("'", '"')
            case Start(keyword="CMD"):
                config.cmd = instruction.command.argv(shell_of(config)) or None
                return _json(config.cmd)
            case Start():
                config.entrypoint = instruction.command.argv(shell_of(config)) or None
                if not cmd_is_set:
                    config.cmd = None
                return _json(config.entrypoint)
            case Shell():
                config.shell = list(instruction.words)
                return _json(config.shell)
        return instruction.source.partition(" ")[2]

    def _expand(self, word: str) -> str:
        return expand(word, self._variables, self._escape)

    def _required(self, instruction: Value) -> str:
        value = self._expand(instruction.value)
        if not value:
            raise BuildError(f"{instruction.value!r} is empty: the variable has no value")
        return value

    def _ports(self, word: str) -> list[str]:
        found = []
        for text in expand_words(word, self._variables, self._escape):
            match = _PORT.match(text)
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
            if match is None or not 0 < first <= last < 65536:
                raise BuildError(f"invalid port: {text!r}: it must be PORT[/PROTOCOL], such as 8080 or 53/udp")
            found += [f"{port}/{(match[3] or 'tcp').lower()}" for port in range(first, last + 1)]
        return found


def check_size(known: Mapping[str, str], added: Mapping[str, str]) -> None:
    """Raises BuildError for variables or labels that grow without end because they refer to each other."""
    size = sum(len(name) + len(value) for pairs in (known, added) for name, value in pairs.items())
    if size > _MAX_CHARACTERS:
        raise BuildError(
            f"{next(iter(added), '')}: variables or labels have {size:,} characters, and Linux passes at most "
            f"{_MAX_CHARACTERS:,} to a program: use shorter values"
        )


def _signal(text: str) -> str:
    name = text.upper()
    full = name if name.startswith("SIG") else f"SIG{name}"
    is_number = name.isdecimal() and len(name) < 3 and 0 < int(name) < signal.NSIG
    if not is_number and full not in signal.Signals.__members__ and not _REAL_TIME_SIGNAL.fullmatch(full):
        raise BuildError(f"invalid signal: {text!r}")
    return text


def _json(words: list[str] | None) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words or ()) + "]"
