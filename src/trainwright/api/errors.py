"""Errors of invalid jobs, in the format of Kubernetes' field errors; long values are abbreviated."""

from collections.abc import Iterable
from typing import Any

from trainwright.objects.field_errors import ErrorType, FieldError, shown

_MAX_SHOWN = 256
"""Maximum characters of a text, and bits of a number, that an error shows."""


class InvalidJob(Exception):  # noqa: N818 - named after Kubernetes' own Invalid
    """The job cannot be run as it is specified."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__(aggregate(self.errors))


def aggregate(errors: Iterable[FieldError]) -> str:
    """Several errors in one line, as the API server prints them: `[a, b]`."""
    texts = [str(error) for error in errors]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, ErrorType.INVALID, detail, _abbreviated(value))


def not_supported(path: str, value: str, supported: Iterable[str]) -> FieldError:
    choices = ", ".join(map(shown, supported))
    return FieldError(path, ErrorType.NOT_SUPPORTED, f"supported values: {choices}", _abbreviated(value))


def _abbreviated(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _MAX_SHOWN:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return shown(f"{value[:_MAX_SHOWN]}...")
    return shown(value)
