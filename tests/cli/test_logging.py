"""Level and format of the log, as the --zap-* flags request them."""

import json
import logging
import re
from typing import Any

import click
import pytest

from trainwright.cli.logging import TIME_ENCODINGS, LogFormat, parse_level, start_logging, zap_format


@pytest.fixture(autouse=True)
def _restore_logger() -> Any:
    logger = logging.getLogger("trainwright")
    before = (logger.handlers, logger.level, logger.propagate)
    yield
    logger.handlers, logger.level, logger.propagate = before


@pytest.mark.parametrize(
    ("devel", "level", "encoder"),
    [(None, logging.INFO, "console"), (True, logging.DEBUG, "console"), (False, logging.INFO, "json")],
)
def test_zap_modes_set_the_defaults(devel: bool | None, level: int, encoder: str) -> None:
    style = zap_format(devel=devel, encoder=None, level=None, time_encoding=None)
    assert style == LogFormat(level, encoder, "iso8601")


def test_flags_override_the_mode() -> None:
    style = zap_format(devel=True, encoder="json", level=logging.ERROR, time_encoding="epoch")
    assert style == LogFormat(logging.ERROR, "json", "epoch")


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.INFO),
        ("error", logging.ERROR),
        ("panic", logging.CRITICAL),
        ("5", 10),
    ],
)
def test_levels_have_names_and_numbers(text: str, level: int) -> None:
    assert parse_level(text) == level


@pytest.mark.parametrize("text", ["", "0", "-1", "loud", "²"])
def test_an_unknown_level_is_refused_with_the_choices(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write debug, info, error, panic or a number above 0"):
        parse_level(text)


def test_json_has_zaps_keys(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogFormat(logging.INFO, "json", "rfc3339"))
    log = logging.getLogger("trainwright.x")
    try:
        raise ValueError("ä")
    except ValueError:
        log.exception("went %s", "wrong")
    log.debug("not this")
    (line,) = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["logger"], entry["msg"]) == ("error", "trainwright.x", "went wrong")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["ts"])
    assert entry["stacktrace"].endswith("ValueError: ä")


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("epoch", "1000000000.25"),
        ("millis", "1000000000250.0"),
        ("nano", "1000000000250000000"),
        ("iso8601", "2001-09-09T01:46:40.250Z"),
        ("rfc3339", "2001-09-09T01:46:40Z"),
        ("rfc3339nano", "2001-09-09T01:46:40.250000Z"),
    ],
)
def test_timestamps_are_encoded(encoding: str, written: str) -> None:
    assert str(TIME_ENCODINGS[encoding](1_000_000_000.25)) == written


def test_the_console_format_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(LogFormat(logging.INFO, "console", "rfc3339"))
    logging.getLogger("trainwright.x").info("hello")
    assert re.fullmatch(r"\S+Z INFO trainwright.x: hello\n", capsys.readouterr().err)
