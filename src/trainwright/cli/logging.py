"""How processes that stay (`up`, `operator`) write their log: to standard error, one line per record."""

import logging
import sys

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(*, verbose: bool, quiet: bool) -> None:
    """`quiet` is for a terminal, where only warnings are worth a line."""
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    write_log(level, logging.Formatter(LINE))


def write_log(level: int, formatter: logging.Formatter) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logger = logging.getLogger("trainwright")
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False
