"""What is wrong with a manifest, in Kubernetes' own words, so that every refusal reads like the API server's."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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
            return f"{self.path}: {self.type}: {json.dumps(self.value)}: {self.detail}"
        return f"{self.path}: {self.type}: {self.detail}"


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
    choices = ", ".join(json.dumps(choice) for choice in supported)
    return FieldError(path, ErrorType.NOT_SUPPORTED, f"supported values: {choices}", value)
