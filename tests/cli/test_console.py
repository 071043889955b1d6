"""Lines on terminals and elsewhere: only terminals get colours and the live line."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.console import Console, visible


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_everything_is_plain() -> None:
    stream = io.StringIO()
    console = Console.of(stream, {})
    console.print("hello", colour="red")
    console.live("epoch 1")
    console.print_log("[master-0]", 0, "\x1b[31mred\x1b[0m\n")
    assert stream.getvalue() == "hello\n[master-0] red\n"


def test_a_terminal_gets_colours() -> None:
    stream = Terminal()
    Console.of(stream, {"TERM": "xterm"}).print("hello", colour="red")
    assert stream.getvalue() == "\x1b[31mhello\x1b[0m\n"


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(environment: dict[str, str]) -> None:
    stream = Terminal()
    Console.of(stream, environment).print("hello", colour="red")
    assert stream.getvalue() == "hello\n"


def test_the_live_line_stays_below_the_others() -> None:
    stream = Terminal()
    console = Console(stream, tty=True, colours=False)
    console.live("epoch 1")
    console.print("a line")
    console.live("epoch 2")
    console.live("")
    assert stream.getvalue() == "epoch 1\r\x1b[Ka line\nepoch 1\r\x1b[Kepoch 2\r\x1b[K"


def test_the_live_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    Console(stream, tty=True, colours=False).live("0123456789abcdef")
    assert stream.getvalue() == "012345678"


def test_characters_that_the_encoding_lacks_are_replaced() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    Console.of(stream, {}).print("→ embedded cluster … ü")
    assert raw.getvalue() == b"-> embedded cluster ... ?\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain"),
        ("10%\r 50%\r100%\n", "100%"),
        ("bell\x07 and back\x08", "bell and back"),
        ("\x1b[2Jclear \x1b[1mbold\x1b[0m", "[2Jclear \x1b[1mbold\x1b[0m"),
        ("\r\n", ""),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_a_line_is_shown_as_a_terminal_would(line: str, shown: str) -> None:
    assert visible(line) == shown


@given(st.text())
def test_no_output_can_move_the_cursor(line: str) -> None:
    assert not set(visible(line)) & {"\n", "\r", "\x07", "\x08"}
