"""Lines on terminals and elsewhere: only terminals get colours and the live line."""

import io
import json
import re
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.errors import CONTROL, CommandError
from trainwright.cli.output.console import Console, cells, plain_text, visible
from trainwright.cli.output.formats import object_text


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


def test_texts_of_others_cannot_control_the_terminal() -> None:
    stream = Terminal()
    console = Console.of(stream, {"TERM": "xterm"})
    console.print("image \x1b]0;title\x07\x1b[2Jx\x9b31m\n\x1b[31mred\x1b[0m\ttab")
    assert stream.getvalue() == "image x\n\x1b[31mred\x1b[0m\ttab\n"
    assert CommandError("gpj.\u202eexe").format_message() == "gpj.exe"
    assert CommandError("bad \x1b]52;c;cm0gLXJmIH4=\x07name\nnext\tline").format_message() == (
        "bad ]52;c;cm0gLXJmIH4=name\nnext\tline"
    )


@pytest.mark.parametrize(("output", "decode"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_objects_of_others_cannot_control_the_terminal(output: str, decode: Callable[[str], object]) -> None:
    objects = {"author": "\x9b31m\u202eX\u2066", "name": "Jürgen"}
    text = object_text(objects, output)
    assert not CONTROL.search(text)
    assert decode(text) == objects


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
    assert stream.getvalue() == "epoch 1\r\x1b[Ja line\nepoch 1\r\x1b[Jepoch 2\r\x1b[J"


def test_the_live_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    Console(stream, tty=True, colours=False).live("0123456789abcdef")
    assert stream.getvalue() == "012345678"


def test_wide_characters_occupy_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    stream = Terminal()
    Console(stream, tty=True, colours=False).live("训练进度一二三")
    assert stream.getvalue() == "训练进度"
    assert cells("\x1b[31m训\x1b[0me\u0301") == 3


def test_several_live_lines_are_erased_together() -> None:
    stream = Terminal()
    console = Console(stream, tty=True, colours=False)
    console.live("bar", "", "status")
    console.live()
    assert stream.getvalue() == "bar\nstatus\r\x1b[1A\x1b[J"


def test_live_lines_that_a_narrower_terminal_has_wrapped_are_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Terminal()
    console = Console(stream, tty=True, colours=False)
    console.live("x" * 50)
    monkeypatch.setenv("COLUMNS", "20")
    console.live()
    assert stream.getvalue().endswith("\r\x1b[2A\x1b[J")


def test_a_batch_is_written_at_once() -> None:
    stream = Terminal()
    console = Console(stream, tty=True, colours=False)
    console.live("old")
    with console.batch():
        console.print("one")
        console.print("two")
        assert stream.getvalue() == "old"
        console.live("new")
        console.print("three")
    assert stream.getvalue() == "old\r\x1b[Jone\ntwo\nnew\r\x1b[Jthree\nnew"


def test_colours_of_a_log_line_end_with_it() -> None:
    stream = Terminal()
    Console(stream, tty=True, colours=True).print_log("[a]", 0, "\x1b[31mred")
    assert stream.getvalue() == "\x1b[36m[a]\x1b[0m \x1b[31mred\x1b[0m\n"


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
        ("\x1b[2Jclear \x1b[1mbold\x1b[0m", "clear \x1b[1mbold\x1b[0m"),
        ("\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (" 1/9 [>..]\x1b[K\b\b\b\b", " 1/9 [>..]"),
        ("abc\b\bx", "ax"),
        ("\r 10%|#  |\r                \r{'loss': 1}\n", "{'loss': 1}"),
        ("\r100%|###|\r\x1b[K\r   \r", "100%|###|"),
        ("\r\n", ""),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_a_line_is_shown_as_a_terminal_would(line: str, shown: str) -> None:
    assert visible(line) == shown


@given(st.text())
def test_no_output_can_move_the_cursor(line: str) -> None:
    assert not set(visible(line)) & {"\n", "\r", "\x07", "\x08", "\x9b"}
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;:]*m", "", visible(line))


def test_texts_of_others_do_not_reverse_the_line() -> None:
    assert plain_text("exit \u202etxt.exe\u2069 code") == "exit txt.exe code"
