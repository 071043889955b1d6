"""Regular expressions of schemas, in Go's syntax. RE2 matches in linear time; Python's own module would let one pattern
stop the server for hours."""

from collections.abc import Callable
from functools import cache
from typing import Any

_GO_TEXTS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
}


class PatternError(ValueError):
    """The pattern is not a regular expression; the message is Go's."""


@cache
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Whether a text contains a match."""
    re2, options = _library()
    try:
        compiled = re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(_go_text(error)) from error
    return lambda text: compiled.search(text) is not None


@cache
def _library() -> tuple[Any, Any]:
    import re2  # only clusters with such CRDs need it

    options = re2.Options()
    options.log_errors = False
    return re2, options


def _go_text(error: Exception) -> str:
    detail = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
    what, _, fragment = detail.partition(": ")
    quoted = f": `{fragment}`" if fragment else ""
    return f"error parsing regexp: {_GO_TEXTS.get(what, what)}{quoted}"
