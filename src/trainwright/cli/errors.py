"""Errors that end a command: one message for the user, no traceback, exit code 1."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from trainwright.kube.client.errors import ApiError, Unauthorized, Unreachable
from trainwright.kube.client.kubeconfig import ConfigError


class CommandError(click.ClickException):
    """Ends the command. The message says what happened, to which object, and what to do."""


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
