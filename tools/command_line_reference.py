"""Prints docs/reference/command-line.md from the commands themselves; a test compares the page with it."""

import click

from trainwright.cli.main import COMMANDS, cli

HEAD = """\
# Command line

Made by `tools/command_line_reference.py` from the commands themselves; `trainwright COMMAND --help` says the same.

Commands mean the embedded cluster unless `--context`, `--kubeconfig` or `TRAINWRIGHT_CONTEXT` says otherwise, and a
command that changes something prints its target first."""


def main() -> None:
    print(HEAD)
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        context = click.Context(command, info_name=f"trainwright {name}", terminal_width=110, max_content_width=110)
        print(f"\n## trainwright {name}\n\n```\n{command.get_help(context)}\n```")


if __name__ == "__main__":
    main()
