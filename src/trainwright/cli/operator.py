"""`trainwright operator`: the operator as a process beside a Kubernetes cluster, with upstream's flags."""

from pathlib import Path

import click

from trainwright.cli.problems import Problem
from trainwright.operator.options import OperatorError, OperatorOptions

_DEFAULTS = OperatorOptions()


@click.command(name="operator")
@click.option("--namespace", metavar="NAME", help="Look after this namespace alone (default: all).")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The cluster's kubeconfig (default: the cluster around this pod, else $KUBECONFIG or ~/.kube/config).",
)
@click.option("--context", metavar="NAME", help="The kubeconfig's context (default: its current one).")
@click.option(
    "--enable-scheme",
    multiple=True,
    metavar="KIND",
    help="A kind to look after, such as pytorchjob; may be given several times (default: all).",
)
@click.option("--install-crds", is_flag=True, help="First install or update the CustomResourceDefinitions.")
@click.option(
    "--controller-threads",
    type=click.IntRange(min=1),
    default=_DEFAULTS.controller_threads,
    show_default=True,
    help="Jobs that are looked at at the same time.",
)
@click.option(
    "--parallel-writes",
    type=click.IntRange(min=1),
    default=_DEFAULTS.parallel_writes,
    show_default=True,
    help="Writes to the cluster that are under way at the same time.",
)
@click.option(
    "--pytorch-init-container-image",
    default=_DEFAULTS.pytorch_init_container_image,
    show_default=True,
    metavar="IMAGE",
    help="The image in which PyTorch workers wait for their master's name.",
)
@click.option(
    "--pytorch-init-container-max-tries",
    type=click.IntRange(min=1),
    default=_DEFAULTS.pytorch_init_container_max_tries,
    show_default=True,
    help="How often they ask before they fail.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every decision.")
def command(
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    enable_scheme: tuple[str, ...],
    install_crds: bool,
    controller_threads: int,
    parallel_writes: int,
    pytorch_init_container_image: str,
    pytorch_init_container_max_tries: int,
    verbose: bool,
) -> None:
    """Run the operator beside a Kubernetes cluster.

    The embedded cluster has its own; this one is for any other. It runs until it gets SIGTERM or SIGINT.
    """
    import asyncio

    from trainwright.cli.logs import log_to_stderr
    from trainwright.kube.config import ConfigError
    from trainwright.operator import run_operator

    log_to_stderr(verbose=verbose, quiet=False)
    options = OperatorOptions(
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        enable_scheme=enable_scheme,
        install_crds=install_crds,
        controller_threads=controller_threads,
        parallel_writes=parallel_writes,
        pytorch_init_container_image=pytorch_init_container_image,
        pytorch_init_container_max_tries=pytorch_init_container_max_tries,
    )
    try:
        asyncio.run(run_operator(options))
    except (OperatorError, ConfigError) as error:
        raise Problem(str(error)) from error
