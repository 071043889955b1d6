"""What a user is told when a command cannot do its work: one message, no traceback, exit code 1.

Errors of the other packages arrive here as they are and leave as such a message.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from trainwright.kube.client.errors import ApiError, Unauthorized, Unreachable
from trainwright.kube.client.kubeconfig import ConfigError


class Problem(click.ClickException):
    """Ends the command. The message says what is wrong, where, and what to do."""


@contextmanager
def problems_reported(target: str) -> Iterator[None]:
    """Turns what can go wrong between us and the cluster `target` into a Problem."""
    try:
        yield
    except ConfigError as error:
        raise Problem(str(error)) from error
    except Unreachable as error:
        raise Problem(f"{target} does not answer: {error}") from error
    except Unauthorized as error:
        raise Problem(f"{target} does not know us: {error}; check the credentials of the context") from error
    except ApiError as error:
        raise Problem(f"{target} refused: {error}") from error
