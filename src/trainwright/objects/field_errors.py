"""Validation errors of single fields, with the texts of k8s.io/apimachinery's field.Error.

Admission and the operator report them for jobs, the embedded API server for all other objects.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trainwright.objects import Object

_ESCAPES = {
    '"': '\\"', "\\": "\\\\",
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


class ErrorType(Enum):
    """The type of an error: its text in messages, and its reason in the causes of a Status."""

    REQUIRED = "Required value", "FieldValueRequired"
    INVALID = "Invalid value", "FieldValueInvalid"
    TYPE_INVALID = "Invalid value", "FieldValueTypeInvalid"
    NOT_SUPPORTED = "Unsupported value", "FieldValueNotSupported"
    FORBIDDEN = "Forbidden", "FieldValueForbidden"
    NOT_FOUND = "Not found", "FieldValueNotFound"
    DUPLICATE = "Duplicate value", "FieldValueDuplicate"
    TOO_LONG = "Too long", "FieldValueTooLong"
    TOO_MANY = "Too many", "FieldValueTooMany"

    @property
    def text(self) -> str:
        return self.value[0]

    @property
    def reason(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class FieldError:
    """An error of one field. `shown` is the value as the message shows it; empty: the message has no value."""

    path: str
    type: ErrorType
    detail: str = ""
    shown: str = ""

    def __str__(self) -> str:
        return f"{_printable(self.path)}: {self.message}"

    @property
    def message(self) -> str:
        """The error without its path."""
        return ": ".join(part for part in (self.type.text, self.shown, self.detail) if part)

    def cause(self) -> Object:
        """As an entry of a Status' `details.causes`."""
        return {"reason": self.type.reason, "message": self.message, "field": self.path}


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, ErrorType.REQUIRED, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, detail, shown(value))


def invalid_type(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, ErrorType.TYPE_INVALID, detail, shown(value))


def not_supported(path: str, value: Any, supported: Iterable[Any]) -> FieldError:
    choices = ", ".join(map(shown, supported))
    return FieldError(path, ErrorType.NOT_SUPPORTED, f"supported values: {choices}", shown(value))


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, ErrorType.FORBIDDEN, detail)


def not_found(path: str, value: Any) -> FieldError:
    return FieldError(path, ErrorType.NOT_FOUND, shown=shown(value))


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, ErrorType.DUPLICATE, shown=shown(value))


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, ErrorType.TOO_LONG, f"may not be more than {limit} bytes")


def too_many(path: str, count: int, limit: int) -> FieldError:
    return FieldError(path, ErrorType.TOO_MANY, f"must have at most {limit} items", str(count))


def shown(value: Any) -> str:
    """A value as Go prints it in field errors."""
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def quoted(text: str) -> str:
    """Text as Go quotes it: unprintable characters are escaped, all others stay."""
    return f'"{"".join(map(_escaped, text))}"'


def _printable(path: str) -> str:
    """The brackets of a path contain keys of maps, which may be any text."""
    return path if path.isprintable() else "".join(map(_escaped, path))


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
