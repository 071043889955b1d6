"""The log of the long-running commands (`up`, `operator`) on standard error.

Its format can be chosen by the --zap-* flags of Go operators.
"""

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

ENCODERS = ("console", "json")
STACKTRACE_LEVELS = ("info", "error", "panic")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR, "panic": logging.CRITICAL}


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


TIME_ENCODINGS: Mapping[str, Callable[[float], object]] = {
    "epoch": lambda seconds: seconds,
    "millis": lambda seconds: seconds * 1e3,
    "nano": lambda seconds: int(seconds * 1e9),
    "iso8601": lambda seconds: _utc(seconds).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
    "rfc3339": lambda seconds: _utc(seconds).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "rfc3339nano": lambda seconds: _utc(seconds).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z",
}


@dataclass(frozen=True)
class LogFormat:
    level: int
    encoder: str = "console"
    time_encoding: str = "iso8601"


def zap_format(*, devel: bool | None, encoder: str | None, level: int | None, time_encoding: str | None) -> LogFormat:
    """The format that the --zap-* flags ask for.

    As in zap, the development mode defaults to debug and console, the production mode to info and JSON. If neither is
    requested, the defaults are info and console.
    """
    default_level = logging.DEBUG if devel else logging.INFO
    return LogFormat(
        level=default_level if level is None else level,
        encoder=encoder or ("json" if devel is False else "console"),
        time_encoding=time_encoding or "iso8601",
    )


def parse_level(text: str) -> int:
    """A level's name, or a verbosity above 0; every verbosity means debug."""
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return logging.DEBUG
    raise click.BadParameter(f"{text!r} is not a level: write debug, info, error, panic or a number above 0")


def start_logging(style: LogFormat) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(style) if style.encoder == "json" else _Console(style))
    logger = logging.getLogger("trainwright")
    logger.handlers = [handler]
    logger.setLevel(style.level)
    logger.propagate = False


def console_formatter() -> logging.Formatter:
    return _Console(LogFormat(level=logging.INFO))


class _Console(logging.Formatter):
    """One line per record."""

    def __init__(self, style: LogFormat) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._time = TIME_ENCODINGS[style.time_encoding]

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        _ = datefmt
        return str(self._time(record.created))


class _Json(logging.Formatter):
    """One JSON object per record, with zap's keys."""

    def __init__(self, style: LogFormat) -> None:
        super().__init__()
        self._time = TIME_ENCODINGS[style.time_encoding]

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "level": record.levelname.lower(),
            "ts": self._time(record.created),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
