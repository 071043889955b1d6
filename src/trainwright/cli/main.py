"""The entry point. It lists the commands without importing them, so that the command line starts fast."""

import importlib
from typing import TYPE_CHECKING, Any

import click

from trainwright import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SECTIONS = {
    "Train": {
        "run": "Run a program or the jobs in manifests, and follow them until they finish.",
        "init": "Write a manifest to start from.",
    },
    "Look after jobs": {
        "ps": "List training jobs of all kinds.",
        "logs": "Print the logs of all ranks of a job, merged by time.",
        "describe": "Show a job: state, ranks, why it failed, events, files, and what to do next.",
        "stack": "Print the Python stacks of all ranks of a running job.",
        "cp": "Copy files from the pods of a job, or into them.",
        "events": "List the events of a job and its pods, the latest last.",
        "wait": "Wait until jobs reach a state.",
        "stop": "Stop jobs; the jobs and their files stay.",
        "suspend": "End the pods of jobs without deleting the jobs.",
        "resume": "Start jobs that were stopped or suspended.",
        "scale": "Change the number of replicas of a role.",
        "delete": "Delete jobs with their pods, logs and private files.",
        "history": "List finished runs with their last metrics, the latest last.",
    },
    "The cluster on this machine": {
        "up": "Start the embedded cluster.",
        "down": "Stop the embedded cluster and its pods.",
        "status": "Show the state of the cluster and its jobs.",
        "doctor": "Check this machine and its cluster, and say what to do.",
    },
    "Images": {
        "image": "Build, list, pull, push, save and load images.",
    },
    "Other": {
        "operator": "Run the operator against a Kubernetes cluster.",
        "crds": "Print the CustomResourceDefinitions.",
        "completion": "Print the completion script for a shell.",
        "version": "Print the version.",
    },
}
"""The commands as `--help` shows them."""
COMMANDS = {name: text for section in SECTIONS.values() for name, text in section.items()}
"""`trainwright.cli.commands.NAME` defines each as `command`; those that look after jobs are in `commands.jobs`,
the group of those about images is in `commands.images`."""
ALIASES = {"get": "ps"}
"""kubectl's words for commands of ours."""


class LazyGroup(click.Group):
    """Imports a command's module when the command is called, not when it is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        _ = ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        _ = ctx
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        command = importlib.import_module(f"trainwright.cli.commands.{_module(name)}").command
        assert isinstance(command, click.Command)  # noqa: S101 (for the type checker)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from trainwright.cli.errors import INTERRUPTED

            click.echo("Interrupted", err=True)
            ctx.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in {*COMMANDS, *ALIASES}:
            ctx.fail(_unknown_command(args[0]))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _ = ctx
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands use the embedded cluster unless --context, --kubeconfig or $TRAINWRIGHT_CONTEXT selects another.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Run training jobs on this machine and on any Kubernetes cluster.

    Jobs are Python programs or manifests of Kubeflow: PyTorchJob, TFJob, XGBoostJob, PaddleJob and JAXJob.

    \b
      trainwright run train.py   run a program as a training job and follow it
      trainwright run job.yaml   run the job in a manifest and follow it
      trainwright up --detach    start a cluster on this machine
    """


def main(**settings: Any) -> None:
    cli(prog_name="trainwright", **settings)


def _module(name: str) -> str:
    if name == "image":
        return "images.group"
    return f"jobs.{name}" if name in SECTIONS["Look after jobs"] else name


def _unknown_command(name: str) -> str:
    import difflib

    from trainwright.cli.commands.images.group import ALIASES as IMAGE_ALIASES
    from trainwright.cli.commands.images.group import COMMANDS as IMAGE_COMMANDS

    if name in IMAGE_COMMANDS or name in IMAGE_ALIASES:
        return f"unknown command {name!r}: did you mean `image {IMAGE_ALIASES.get(name, name)}`?"
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"available commands: {', '.join(COMMANDS)}"
    return f"unknown command {name!r}: {hint}"
