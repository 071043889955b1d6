"""A command's connection to the selected cluster, and the flags that select cluster and namespace."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from trainwright.cli.errors import report_errors
from trainwright.cli.flags import TargetOptions, target_flags
from trainwright.cli.targets import Target, find_target
from trainwright.kube.client.sync_client import SyncClient

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """The selected cluster, and a client for it."""

    target: Target
    client: SyncClient

    @property
    def namespace(self) -> str:
        return self.target.config.namespace

    @property
    def flags(self) -> str:
        """The flags that select this cluster and namespace again, for suggested commands."""
        return self.target.flags + self.target.namespace_flag

    def announce(self) -> None:
        """Prints the target, as every command does before it changes something."""
        click.echo(self.target.line, err=True)


def cluster_command(command: F) -> Callable[..., Any]:
    """Adds the flags that select cluster and namespace, and passes a `Session` as the first argument."""

    @functools.wraps(command)
    def connected(*args: Any, options: TargetOptions, namespace: str | None, **values: Any) -> Any:
        target = find_target(options).in_namespace(namespace)
        with report_errors(target.name), SyncClient(target.config) as client:
            return command(Session(target, client), *args, **values)

    namespace_flag = click.option(
        "-n", "--namespace", metavar="NAME", help="Use this namespace (default: the namespace of the context)."
    )
    return namespace_flag(target_flags(connected))
