"""Exceptions as Python prints them are found in logs, whatever surrounds them."""

import traceback

from hypothesis import given
from hypothesis import strategies as st

from trainwright.insight.log_exceptions import find_exceptions, find_failed_processes
from trainwright.objects.kinds.container_runs import Line

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=10)
MESSAGES = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)
TYPES = st.sampled_from([ValueError, RuntimeError, KeyError, OSError, ZeroDivisionError])
ORDINARY = st.lists(MESSAGES | st.sampled_from(["", "  indented", "ValueError: handled"]), max_size=8)


def printed(error: BaseException) -> list[str]:
    """As Python prints an uncaught exception."""
    return "".join(traceback.format_exception(error)).splitlines()


def raised(kind: type[Exception], message: str, cause: Exception | None = None) -> Exception:
    try:
        raise kind(message) from cause
    except Exception as error:
        return error


def last_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()


@given(kind=TYPES, message=MESSAGES, before=ORDINARY, prefix=st.sampled_from(["", "[rank3]: "]))
def test_an_exception_is_found_after_any_output(
    kind: type[Exception], message: str, before: list[str], prefix: str
) -> None:
    error = raised(kind, message)
    lines = [Line(f"{prefix}{text}", float(number)) for number, text in enumerate([*before, *printed(error)])]

    found = find_exceptions(lines)[-1]

    assert found.text[0] == last_line(error)
    assert found.summary == last_line(error)
    assert found.process == (3 if prefix else None)
    assert found.at == float(len(before))
    assert lines[found.raised_line].text == f"{prefix}{last_line(error)}"


@given(outer=TYPES, inner=TYPES, messages=st.tuples(MESSAGES, MESSAGES))
def test_a_chain_of_exceptions_is_one_with_its_causes(
    outer: type[Exception], inner: type[Exception], messages: tuple[str, str]
) -> None:
    cause = raised(inner, messages[0])
    error = raised(outer, messages[1], cause)

    [found] = find_exceptions([Line(text) for text in printed(error)])

    assert found.text[0] == last_line(error)
    assert found.first[0] == last_line(cause)
    assert found.summary.startswith(last_line(error))


@given(first=MESSAGES, second=MESSAGES, order=st.randoms(use_true_random=False))
def test_tracebacks_of_two_processes_may_be_mixed_line_by_line(first: str, second: str, order: object) -> None:
    errors = {0: raised(ValueError, first), 1: raised(RuntimeError, second)}
    pending = {rank: [f"[rank{rank}]: {text}" for text in printed(error)] for rank, error in errors.items()}
    lines = []
    while any(pending.values()):
        rank = order.choice([rank for rank, texts in pending.items() if texts])  # type: ignore[attr-defined]
        lines.append(Line(pending[rank].pop(0)))

    found = {one.process: one.text[0] for one in find_exceptions(lines)}

    assert found == {rank: last_line(error) for rank, error in errors.items()}


def test_exceptions_that_python_ignored_are_left_out() -> None:
    error = printed(raised(ValueError, "boom"))
    for header in ("Exception ignored in: <function Pool.__del__ at 0x7f>", "Error in atexit._run_exitfuncs:"):
        assert find_exceptions([Line(text) for text in (header, *error)]) == []


def test_a_syntax_error_of_the_program_itself_has_no_traceback() -> None:
    lines = ['  File "train.py", line 3', "    def main(:", "             ^", "SyntaxError: invalid syntax"]
    [found] = find_exceptions([Line(text) for text in lines])
    assert found.summary == "SyntaxError: invalid syntax"


def test_a_message_that_announces_further_lines_is_joined() -> None:
    error = raised(ValueError, "the configuration is invalid:\n  - lr must be positive\n  - epochs is missing")
    [found] = find_exceptions([Line(text) for text in printed(error)])
    assert found.summary == "ValueError: the configuration is invalid: - lr must be positive"


@given(st.lists(st.text(max_size=30) | st.sampled_from(["Traceback (most recent call last):", "[rank0]: x", "  + "])))
def test_any_lines_can_be_read(texts: list[str]) -> None:
    lines = [Line(text) for text in texts]
    assert all(one.text and one.summary is not None for one in find_exceptions(lines))
    assert find_failed_processes(lines) == []
