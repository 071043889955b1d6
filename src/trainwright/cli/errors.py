"""Errors that end a command: one message for the user, no traceback, exit code 1. And the other exit codes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from trainwright.kube.client.errors import ApiError, Unauthorized, Unreachable
from trainwright.kube.client.kubeconfig import ConfigError

DIRECTION = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that show the rest of a line in another order, as a range of an expression."""
CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{DIRECTION}]")
"""Codes that a terminal obeys, and those that change the direction of writing."""

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended: 128 + SIGINT, as in shells."""
TIMED_OUT = 124
"""The exit code of a command whose --timeout has passed, as of `timeout`."""


class CommandError(click.ClickException):
    """Ends the command. The message says what happened, to which object, and what to do."""

    def format_message(self) -> str:
        """Without control codes: the message may quote a pod, an image or a server."""
        return CONTROL.sub("", super().format_message())


@contextmanager
def report_errors(target: str) -> Iterator[None]:
    """Turns the errors of requests to the cluster `target` into a CommandError."""
    try:
        yield
    except ConfigError as error:
        raise CommandError(str(error)) from error
    except Unreachable as error:
        raise CommandError(f"{target} is unreachable: {error}") from error
    except Unauthorized as error:
        raise CommandError(f"{target} rejected the credentials: {error}; check those of the context") from error
    except ApiError as error:
        raise CommandError(f"{target} refused the request: {error}") from error
