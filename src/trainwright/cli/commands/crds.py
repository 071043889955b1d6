"""`trainwright crds`: prints the CustomResourceDefinitions as a manifest."""

import click


@click.command(name="crds")
def command() -> None:
    """Print the CustomResourceDefinitions.

    For clusters where the operator is not allowed to install them: `trainwright crds | kubectl apply -f -`.
    """
    # Imported here because it takes longer than the rest of the command line.
    import yaml

    from trainwright.api.crd import render_crd
    from trainwright.api.kinds import KINDS

    click.echo(yaml.safe_dump_all(map(render_crd, KINDS.values()), sort_keys=False), nl=False)
