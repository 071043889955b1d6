"""Warnings of watches about an unreachable cluster: every one once."""

import io
import logging

from trainwright.cli.follow.follower import WatchWarnings
from trainwright.cli.output.console import Console


def test_the_same_warning_of_several_watches_is_shown_once() -> None:
    stream = io.StringIO()
    handler = WatchWarnings(Console(stream, tty=False, colours=False))
    for watch in ("pods", "events"):
        text = f"{watch}: cannot connect to https://127.0.0.1:26443; trying again"
        handler.handle(logging.LogRecord("trainwright.kube", logging.WARNING, "", 1, text, None, None))
    assert stream.getvalue() == "Warning: cannot connect to https://127.0.0.1:26443; trying again\n"


def test_the_first_warning_is_followed_by_advice() -> None:
    stream = io.StringIO()
    handler = WatchWarnings(Console(stream, tty=False, colours=False), "start it again")
    for text in ("pods: lost it; trying again", "pods: cannot connect; trying again"):
        handler.handle(logging.LogRecord("trainwright.kube", logging.WARNING, "", 1, text, None, None))
    assert stream.getvalue().splitlines() == [
        "Warning: lost it; trying again",
        "  start it again",
        "Warning: cannot connect; trying again",
    ]
