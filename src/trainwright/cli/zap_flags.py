"""The logging flags of Go operators (`--zap-*`), put onto our own log."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import click

from trainwright.cli.logging import LINE, write_log

ENCODERS = ("console", "json")
STACKTRACE_LEVELS = ("info", "error", "panic")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR, "panic": logging.CRITICAL}


def _whole(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


TIME_ENCODINGS: Mapping[str, Callable[[float], object]] = {
    "epoch": lambda moment: moment,
    "millis": lambda moment: moment * 1e3,
    "nano": lambda moment: int(moment * 1e9),
    "iso8601": lambda moment: _whole(moment).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z",
    "rfc3339": lambda moment: _whole(moment).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "rfc3339nano": lambda moment: _whole(moment).strftime("%Y-%m-%dT%H:%M:%S.%f") + "Z",
}


@dataclass(frozen=True)
class LogStyle:
    level: int
    encoder: str
    time_encoding: str


def log_style(*, devel: bool | None, encoder: str | None, level: int | None, time_encoding: str | None) -> LogStyle:
    """What the flags ask for. zap's two modes set what is not said: development is debug on a console, production is
    info in JSON. We stand between them if neither is asked for: info on a console."""
    by_mode = logging.DEBUG if devel else logging.INFO
    return LogStyle(
        level=by_mode if level is None else level,
        encoder=encoder or ("json" if devel is False else "console"),
        time_encoding=time_encoding or "iso8601",
    )


def read_level(text: str) -> int:
    """A name, or a number above 0: the higher, the more is said; we know but one step below info."""
    if text in _LEVELS:
        return _LEVELS[text]
    if text.isascii() and text.isdecimal() and int(text) > 0:
        return logging.DEBUG
    raise click.BadParameter(f"{text!r} is not a level: write debug, info, error, panic or a number above 0")


def start_logging(style: LogStyle) -> None:
    write_log(style.level, _Json(style) if style.encoder == "json" else _Console(style))


class _Console(logging.Formatter):
    """One line for each record, as `up` writes them too."""

    def __init__(self, style: LogStyle) -> None:
        super().__init__(LINE)
        self._time = TIME_ENCODINGS[style.time_encoding]

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 (logging's name)
        _ = datefmt
        return str(self._time(record.created))


class _Json(logging.Formatter):
    """One JSON object for each record, with zap's keys."""

    def __init__(self, style: LogStyle) -> None:
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
