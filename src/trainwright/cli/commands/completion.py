"""`trainwright completion`: prints the script that makes a shell complete commands, flags and the names of jobs."""

import click


@click.command(name="completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
      bash   echo 'source <(trainwright completion bash)' >> ~/.bashrc
      zsh    echo 'source <(trainwright completion zsh)' >> ~/.zshrc
      fish   trainwright completion fish > ~/.config/fish/completions/trainwright.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"click does not support {shell}")
    script = kind(click.get_current_context().find_root().command, {}, "trainwright", "_TRAINWRIGHT_COMPLETE")
    click.echo(script.source_template % script.source_vars())
