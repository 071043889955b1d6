"""What is wrong with a manifest, in Kubernetes' own words, so that every refusal reads like the API server's."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_ESCAPES = {
    '"': '\\"', "\\": "\\\\",
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip
_LONGEST_SHOWN = 256


class ErrorType(StrEnum):
    REQUIRED = "Required value"
    INVALID = "Invalid value"
    NOT_SUPPORTED = "Unsupported value"
    FORBIDDEN = "Forbidden"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field, what is wrong with it and why; `value` is shown where Kubernetes shows it."""

    path: str
    type: ErrorType
    detail: str
    value: Any = None

    def __str__(self) -> str:
        if self.type in {ErrorType.INVALID, ErrorType.NOT_SUPPORTED}:
            return f"{_printable(self.path)}: {self.type}: {_shown(self.value)}: {self.detail}"
        return f"{_printable(self.path)}: {self.type}: {self.detail}"


class InvalidJob(Exception):  # noqa: N818 - it says what the job is, like Kubernetes' own Invalid
    """The job cannot be run as it is written."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__(aggregate(self.errors))


def aggregate(errors: Iterable[FieldError]) -> str:
    """Several errors in one line, as the API server prints them: `[a, b]`."""
    texts = [str(error) for error in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def required(path: str, detail: str) -> FieldError:
    return FieldError(path, ErrorType.REQUIRED, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, detail, value)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, ErrorType.FORBIDDEN, detail)


def not_supported(path: str, value: str, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(quoted(choice) for choice in supported)
    return FieldError(path, ErrorType.NOT_SUPPORTED, f"supported values: {choices}", value)


def quoted(text: str) -> str:
    """As Go quotes text in its messages: what cannot be printed is escaped, everything else stays as it is."""
    return f'"{"".join(map(_escaped, text))}"'


def _printable(path: str) -> str:
    """Keys of maps are the user's: what stands between brackets may be anything."""
    return path if path.isprintable() else "".join(map(_escaped, path))


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shown(value: Any) -> str:
    """The value as the API server shows it, unless that were longer than anybody reads."""
    if isinstance(value, int) and value.bit_length() > _LONGEST_SHOWN:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str):
        return quoted(value if len(value) <= _LONGEST_SHOWN else f"{value[:_LONGEST_SHOWN]}...")
    return json.dumps(value)
