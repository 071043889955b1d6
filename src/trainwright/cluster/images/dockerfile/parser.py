"""Reads a Dockerfile. Errors name line and column."""

import csv
import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainwright.cluster.images.dockerfile.instructions import (
    Arg,
    Command,
    Copy,
    Dockerfile,
    From,
    Ignored,
    Instruction,
    Mount,
    Pairs,
    Run,
    Shell,
    Stage,
    Start,
    Value,
    Words,
)
from trainwright.cluster.images.dockerfile.lines import DockerfileError, LogicalLine, read_lines
from trainwright.cluster.images.dockerfile.words import split_pairs

_STAGE_NAME = re.compile(r"^[a-z][a-z0-9_.-]*$")
_RESERVED_STAGE_NAMES = frozenset({"scratch", "context"})
_MOUNT_TYPES = frozenset({"bind", "cache", "tmpfs", "secret", "ssh"})


def parse(text: str) -> Dockerfile:
    lines = read_lines(text)
    if not lines.lines:
        raise DockerfileError("the Dockerfile has no instructions", line=1)
    warnings = list(lines.warnings)
    arguments: list[Arg] = []
    stages: list[Stage] = []
    body: list[Instruction] = []
    for line in lines.lines:
        parsed = _parse_instruction(line, lines.escape, warnings)
        if isinstance(parsed, From):
            _end_stage(stages, body)
            stages.append(Stage(parsed, (), len(stages)))
        elif stages:
            body.append(parsed)
        elif isinstance(parsed, Arg):
            arguments.append(parsed)
        else:
            raise line.error(f"{parsed.keyword} before the first FROM: only ARG may come before it")
    if not stages:
        raise lines.lines[-1].error("no build stage: the Dockerfile has no FROM")
    _end_stage(stages, body)
    return Dockerfile(tuple(arguments), tuple(stages), lines.escape, warnings)


def _end_stage(stages: list[Stage], body: list[Instruction]) -> None:
    if stages:
        stages[-1] = Stage(stages[-1].origin, tuple(body), stages[-1].index)
    body.clear()


@dataclass(slots=True)
class _Line:
    """What the functions below read: the keyword, its flags, and the rest of the line."""

    logical: LogicalLine
    keyword: str
    escape: str
    flags: dict[str, list[str]]
    rest: str
    offset: int
    """The column of the rest in the line."""
    warnings: list[str]
    used: set[str] = field(default_factory=set)

    def error(self, message: str, offset: int | None = None) -> DockerfileError:
        return self.logical.error(message, self.offset if offset is None else offset)

    def flag(self, name: str, default: str = "") -> str:
        self.used.add(name)
        values = self.flags.get(name)
        if values and len(values) > 1:
            raise self.error(f"duplicate flag --{name}", 0)
        if values and not values[0]:
            raise self.error(f"missing a value on flag --{name}", 0)
        return values[0] if values else default

    def switch(self, name: str) -> bool | None:
        if name not in self.flags:
            self.used.add(name)
            return None
        values = self.flags[name]
        value = "true" if values == [""] else self.flag(name)
        self.used.add(name)
        if value not in {"true", "false"}:
            raise self.error(f"--{name} is true or false, not {value!r}", 0)
        return value == "true"

    def repeated(self, name: str) -> list[str]:
        self.used.add(name)
        return self.flags.get(name, [])

    def check_flags(self) -> None:
        for name in self.flags:
            if name in self.used:
                continue
            near = difflib.get_close_matches(name, self.used, n=1)
            hint = f" (did you mean --{near[0]}?)" if near else ""
            raise self.error(f"unknown flag --{name} of {self.keyword}{hint}", self.logical.text.find(f"--{name}"))

    @property
    def common(self) -> dict[str, Any]:
        line, column = self.logical.position(0)
        source = self.logical.text
        return {"keyword": self.keyword, "source": source, "line": line, "column": column}

    def required(self) -> str:
        if not self.rest:
            raise self.error(f"{self.keyword} requires at least one argument", 0)
        return self.rest

    def json_words(self) -> tuple[str, ...] | None:
        """The words of the exec form; None for any other text."""
        if not self.rest.startswith("["):
            return None
        try:
            words = json.loads(self.rest)
        except ValueError:
            return None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return None
        return tuple(words)

    def words(self) -> tuple[str, ...]:
        words = self.json_words()
        return tuple(self.rest.split()) if words is None else words


def _parse_instruction(logical: LogicalLine, escape: str, warnings: list[str]) -> Instruction:
    match = re.match(r"\S+", logical.text)
    assert match is not None  # noqa: S101 - logical lines are not empty
    keyword = match[0].upper()
    parse_keyword = _INSTRUCTIONS.get(keyword)
    if parse_keyword is None:
        near = difflib.get_close_matches(keyword, _INSTRUCTIONS, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else f"; the instructions are {', '.join(_INSTRUCTIONS)}"
        raise logical.error(f"unknown instruction: {match[0]}{hint}")
    flags, offset = _read_flags(logical, match.end(), escape)
    line = _Line(logical, keyword, escape, flags, logical.text[offset:].strip(), offset, warnings)
    parsed = parse_keyword(line)
    line.check_flags()
    return parsed


def _read_flags(logical: LogicalLine, position: int, escape: str) -> tuple[dict[str, list[str]], int]:
    """The `--name=value` words after the keyword, and the offset of what follows them."""
    flags: dict[str, list[str]] = {}
    text = logical.text
    while True:
        blank = re.compile(r"\s*").match(text, position)
        position = blank.end() if blank else position
        if not text.startswith("--", position):
            return flags, position
        (word, _), *_ = split_pairs(text[position:], escape)
        end = position + _raw_length(text[position:], escape)
        if word == "--":
            return flags, end
        name, _, value = word[2:].partition("=")
        flags.setdefault(name, []).append(_unquote(value, escape))
        position = end


def _raw_length(text: str, escape: str) -> int:
    """The length of the first word as written."""
    position, quote = 0, ""
    while position < len(text) and (quote or not text[position].isspace()):
        character = text[position]
        if character == escape and quote != "'":
            position += 1
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        position += 1
    return min(position, len(text))


def _unquote(value: str, escape: str) -> str:
    """Without quotes; `$` and escapes of it stay for the expansion of variables."""
    result, position, quote = "", 0, ""
    while position < len(value):
        character = value[position]
        position += 1
        if character == escape and quote != "'" and position < len(value):
            keeps = value[position] == "$"
            result += (character if keeps else "") + value[position]
            position += 1
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"":
            quote = character
        else:
            result += character
    return result


def _from(line: _Line) -> From:
    words = line.rest.split()
    platform = line.flag("platform")
    if not words or len(words) not in {1, 3} or (len(words) == 3 and words[1].upper() != "AS"):
        raise line.error("FROM requires either one or three arguments: FROM IMAGE [AS NAME]")
    alias = words[2].lower() if len(words) == 3 else ""
    if alias and not _STAGE_NAME.match(alias):
        raise line.error(
            f"invalid name for build stage: {words[2]!r}: it must begin with a letter, then letters, digits, _ . -",
            line.offset + line.rest.rfind(words[2]),
        )
    if alias in _RESERVED_STAGE_NAMES:
        raise line.error(f"invalid name for build stage: {alias!r} is reserved")
    return From(**line.common, image=words[0], platform=platform, alias=alias)


def _command(line: _Line) -> Command:
    words = line.json_words()
    if words is not None:
        if not words and line.keyword == "RUN":
            raise line.error("RUN has an empty list")
        return Command(words, uses_shell=False)
    if line.rest.startswith("[") and line.rest.endswith("]"):
        line.warnings.append(
            f"line {line.logical.line}: {line.keyword} looks like a JSON list and is none: the shell gets it as text"
        )
    return Command((line.rest,), uses_shell=True) if line.rest else Command((), uses_shell=False)


def _run(line: _Line) -> Run:
    line.required()
    mounts = tuple(_mount(line, text) for text in line.repeated("mount"))
    network = line.flag("network", "default")
    if network not in {"default", "none", "host"}:
        raise line.error(f"invalid network mode: {network!r}: it is default, host or none", 0)
    if line.flag("security", "sandbox") != "sandbox":
        raise line.error("RUN --security=insecure is not supported", 0)
    return Run(
        **line.common,
        command=_command(line),
        heredocs=tuple(line.logical.heredocs),
        heredoc_text=line.logical.heredoc_text,
        mounts=mounts,
        network=network,
    )


def _mount(line: _Line, text: str) -> Mount:
    found: dict[str, str] = {}
    for part in next(csv.reader([text]), []):
        key, has_value, value = part.partition("=")
        found[key.strip().lower()] = value if has_value else "true"
    kind = found.pop("type", "bind")
    if kind not in _MOUNT_TYPES:
        raise line.error(f"unsupported mount type {kind!r}: it is one of {', '.join(sorted(_MOUNT_TYPES))}", 0)
    target = next((found.pop(key) for key in ("target", "dst", "destination") if key in found), "")
    source = next((found.pop(key) for key in ("source", "src") if key in found), "")
    writable = next((found.pop(key) for key in ("rw", "readwrite") if key in found), None)
    read_only = next((found.pop(key) for key in ("ro", "readonly") if key in found), None)
    if not target and kind in {"bind", "cache", "tmpfs"}:
        raise line.error(f"--mount of type {kind} requires a target", 0)
    name, variable = found.pop("id", ""), found.pop("env", "")
    if kind == "secret" and not name and not target:
        raise line.error("--mount of type secret requires an id, as in --mount=type=secret,id=token", 0)
    if kind == "cache" and ("from" in found or source):
        raise line.error("--mount=type=cache begins empty here: from= and source= are not supported; COPY the files", 0)
    size = re.fullmatch(r"(\d+)([kmgKMG]?)[bB]?", found.pop("size", "0"))
    if size is None:
        raise line.error("--mount: size is a number of bytes, or one with k, m or g, as in size=64m", 0)
    mount = Mount(
        type=kind,
        target=target,
        source=source,
        origin=found.pop("from", ""),
        id=name,
        read_only=(read_only == "true") if read_only is not None else (kind == "bind" and writable != "true"),
        required=found.pop("required", "false") == "true",
        mode=_number(line, found, "mode", 8),
        user=_number(line, found, "uid") or 0,
        group=_number(line, found, "gid") or 0,
        size=size[1] + size[2] if int(size[1]) else "",
        variable=variable,
    )
    found.pop("sharing", None)
    if found:
        raise line.error(f"unexpected key {next(iter(found))!r} in --mount={text}", 0)
    return mount


def _number(line: _Line, found: dict[str, str], key: str, base: int = 10) -> int | None:
    if key not in found:
        return None
    try:
        number = int(text := found.pop(key), base)
    except ValueError:
        number = -1
    if not 0 <= number <= (0o7777 if base == 8 else 0xFFFF_FFFE):
        raise line.error(f"--mount: {key}={text} is not {'an octal mode' if base == 8 else 'a number'}", 0)
    return number


def _copy(line: _Line) -> Copy:
    is_add = line.keyword == "ADD"
    chown, chmod, link = line.flag("chown"), line.flag("chmod"), line.switch("link")
    _ = link  # layers of COPY are independent of earlier ones or not: the files are the same
    excludes, parents = tuple(line.repeated("exclude")), line.switch("parents")
    origin = "" if is_add else line.flag("from")
    checksum = line.flag("checksum") if is_add else ""
    unpack = line.switch("unpack") if is_add else None
    if is_add and line.switch("keep-git-dir"):
        raise line.error("ADD --keep-git-dir is not supported: ADD does not fetch Git repositories", 0)
    words = line.words()
    if len(words) < 2:
        raise line.error(f"{line.keyword} requires at least two arguments: a source and a destination")
    *sources, destination = words
    if destination.startswith("<<") and line.logical.heredocs:
        raise line.error(f"{line.keyword} cannot accept a here-document as its destination")
    if len(sources) > 1 and not destination.endswith("/") and "$" not in destination:
        line.warnings.append(
            f"line {line.logical.line}: when {line.keyword} has several sources, the destination should end with /"
        )
    return Copy(
        **line.common,
        sources=tuple(sources),
        destination=destination,
        heredocs=tuple(line.logical.heredocs),
        origin=origin,
        chown=chown,
        chmod=chmod,
        checksum=checksum,
        excludes=excludes,
        parents=bool(parents),
        unpack=unpack,
    )


def _pairs(line: _Line) -> Pairs:
    line.required()
    words = split_pairs(line.rest, line.escape)
    if not words:
        raise line.error(f"{line.keyword} requires at least one argument")
    if "=" not in words[0][0]:
        parts = line.rest.split(None, 1)
        if len(parts) < 2:
            raise line.error(f"{line.keyword} must have two arguments: NAME VALUE, or NAME=VALUE ...")
        return Pairs(**line.common, pairs=((parts[0], parts[1]),))
    pairs = []
    for word, offset in words:
        name, has_value, value = word.partition("=")
        if not has_value:
            raise line.error(f"can't find = in {word!r}: it must be of the form NAME=VALUE", line.offset + offset)
        if not name:
            raise line.error(f"{line.keyword} names can not be blank", line.offset + offset)
        pairs.append((name, value))
    return Pairs(**line.common, pairs=tuple(pairs))


def _arg(line: _Line) -> Arg:
    line.required()
    arguments: list[tuple[str, str | None]] = []
    for word, offset in split_pairs(line.rest, line.escape):
        name, has_value, value = word.partition("=")
        if not name:
            raise line.error("ARG names can not be blank", line.offset + offset)
        arguments.append((name, value if has_value else None))
    return Arg(**line.common, arguments=tuple(arguments))


def _words(line: _Line) -> Words:
    line.required()
    words = tuple(line.rest.split()) if line.keyword == "EXPOSE" else line.words()
    if any(not word.strip() for word in words) or not words:
        raise line.error(f"{line.keyword} specified with an empty word")
    return Words(**line.common, words=words)


def _value(line: _Line) -> Value:
    value = line.required()
    if line.keyword in {"USER", "STOPSIGNAL"} and len(value.split()) > 1:
        raise line.error(f"{line.keyword} requires exactly one argument")
    if line.keyword == "MAINTAINER":
        line.warnings.append(f"line {line.logical.line}: MAINTAINER is deprecated in favor of a LABEL")
    return Value(**line.common, value=value)


def _start(line: _Line) -> Start:
    return Start(**line.common, command=_command(line))


def _shell(line: _Line) -> Shell:
    words = line.json_words()
    if not words:
        raise line.error('SHELL requires its arguments as a JSON list, such as ["/bin/bash", "-c"]')
    return Shell(**line.common, words=words)


def _ignored(line: _Line) -> Ignored:
    line.required()
    for flag in ("interval", "timeout", "start-period", "start-interval", "retries"):
        if line.keyword == "HEALTHCHECK":
            line.flag(flag)
    instead = "Kubernetes has probes in the manifest"
    if line.keyword == "ONBUILD":
        instead = "write the instruction into the Dockerfiles that it is for"
    line.warnings.append(f"line {line.logical.line}: {line.keyword} is ignored: {instead}")
    return Ignored(**line.common)


_INSTRUCTIONS: dict[str, Callable[[_Line], Instruction]] = {
    "FROM": _from,
    "RUN": _run,
    "COPY": _copy,
    "ADD": _copy,
    "ENV": _pairs,
    "ARG": _arg,
    "WORKDIR": _value,
    "ENTRYPOINT": _start,
    "CMD": _start,
    "USER": _value,
    "LABEL": _pairs,
    "EXPOSE": _words,
    "VOLUME": _words,
    "SHELL": _shell,
    "STOPSIGNAL": _value,
    "HEALTHCHECK": _ignored,
    "ONBUILD": _ignored,
    "MAINTAINER": _value,
}
