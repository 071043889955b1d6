"""`trainwright crds`: our CustomResourceDefinitions as a manifest, for whoever installs them without the operator."""

import click


@click.command(name="crds")
def command() -> None:
    """Print the CustomResourceDefinitions.

    For clusters where the operator may not install them: `trainwright crds | kubectl apply -f -`.
    """
    # Imported here: they take longer than the rest of the command line.
    import yaml

    from trainwright.api.crd import render_crd
    from trainwright.api.kinds import KINDS

    click.echo(yaml.safe_dump_all(map(render_crd, KINDS.values()), sort_keys=False), nl=False)
