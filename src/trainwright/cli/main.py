"""The entry point. It lists the commands without importing them, so that the command line starts fast."""

import os
import sys
from typing import Any

import click

from trainwright import __version__
from trainwright.cli.lazy_group import LazyGroup

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
"""`trainwright.cli.commands.NAME` defines each as `command`; `MainGroup.place` says which are elsewhere."""
ALIASES = {"get": "ps"}
"""kubectl's words for commands of ours."""


_WITHOUT_HOME = frozenset({"operator", "crds", "completion", "version"})
"""Commands that read nothing of the user's home. The operator's container may run as any user."""


class MainGroup(LazyGroup):
    texts = COMMANDS
    aliases = ALIASES

    def place(self, name: str) -> tuple[str, str]:
        if name == "image":
            return "images.group", "command"
        if name == "operator":
            return "operator_flags", "command"
        if name in {"stop", "suspend", "resume"}:
            return "jobs.suspension", f"{name}_command"
        return f"jobs.{name}" if name in SECTIONS["Look after jobs"] else name, "command"

    def suggestion(self, name: str) -> str | None:
        from trainwright.cli.commands.images import group

        if name in group.COMMANDS or name in group.ALIASES:
            return f"image {group.ALIASES.get(name, name)}"
        return super().suggestion(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name not in _WITHOUT_HOME:
            _check_home()
        return name, command, rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from trainwright.cli.errors import INTERRUPTED

            click.echo("Interrupted", err=True)
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _ = ctx
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group(
    cls=MainGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Commands use the embedded cluster unless --context, --kubeconfig or $TRAINWRIGHT_CONTEXT selects another.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Run training jobs on this machine and on any Kubernetes cluster.

    Jobs are Python programs or manifests of Kubeflow: PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob
    and JAXJob.

    \b
      trainwright run train.py   run a program as a training job and follow it
      trainwright run job.yaml   run the job in a manifest and follow it
      trainwright up --detach    start a cluster on this machine
    """


def _check_home() -> None:
    """The files of a home decide which programs run (of git, Python, kubectl), and `sudo` may keep that of another."""
    for variable in ("HOME", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        directory = os.environ.get(variable, "")
        try:
            owner = os.stat(directory).st_uid  # noqa: PTH116 - pathlib is imported by the commands that need it
        except OSError:
            continue
        if owner not in {0, os.geteuid()}:
            from trainwright.cli.errors import CommandError

            raise CommandError(
                f"{variable}={directory} belongs to another user, whose files would decide what runs as you: "
                f"use `sudo -H`, or set {variable} to your own"
            )


def main(**settings: Any) -> None:
    if sys.stdin is None:  # started with <&-: commands that ask or read get an end of file
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
    if sys.argv[1:3] == ["image", "build"]:  # RUN lines are programs of the Dockerfile's author
        from trainwright.cluster.linux.sealed_program import ensure_sealed

        try:
            ensure_sealed()
        except OSError as error:
            sys.exit(f"Error: a copy of Python in memory cannot be executed ({error}): set sysctl vm.memfd_noexec to 0")
    cli(prog_name="trainwright", **settings)
