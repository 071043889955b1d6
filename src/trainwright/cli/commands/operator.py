"""`trainwright operator`: the operator as a process beside a Kubernetes cluster, with upstream's flags.

docs/reference/operator-flags.md compares them with training-operator's, one by one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainwright.cli.errors import Problem
from trainwright.cli.flags import F, GoCommand, bool_flag, duration
from trainwright.cli.logging import ENCODERS, STACKTRACE_LEVELS, TIME_ENCODINGS, parse_level, start_logging, zap_format
from trainwright.engine.rendering.init_template import InitTemplate, InitTemplateError, parse_init_template
from trainwright.engine.settings import Gang, InitContainer, Settings
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions

DEFAULT_TEMPLATE = Path("/etc/config/initContainer.yaml")
_DEFAULTS, _WAITING, _LEASE, _WEBHOOKS = OperatorOptions(), InitContainer(), LeaderElectionOptions(), WebhookOptions()


def _text(flag: str, default: str, metavar: str, meaning: str) -> Callable[[F], F]:
    return click.option(flag, default=default, show_default=True, metavar=metavar, help=meaning)


def _count(flag: str, default: int, meaning: str) -> Callable[[F], F]:
    return click.option(flag, type=click.IntRange(min=1), default=default, show_default=True, help=meaning)


def _duration(flag: str, seconds: float, meaning: str) -> Callable[[F], F]:
    default = f"{seconds:g}s"
    return click.option(flag, type=duration, default=default, show_default=True, metavar="DURATION", help=meaning)


@click.command(name="operator", cls=GoCommand)
@click.option(
    "--namespace",
    metavar="NAME",
    envvar="KUBEFLOW_NAMESPACE",
    help="Look after this namespace alone (default: $KUBEFLOW_NAMESPACE, else all).",
)
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
@_count("--controller-threads", _DEFAULTS.controller_threads, "Jobs that are looked at at the same time.")
@_count("--parallel-writes", _DEFAULTS.parallel_writes, "Writes to the cluster that are under way at the same time.")
@click.option(
    "--kube-api-qps",
    type=float,
    default=0.0,
    show_default=True,
    help="Requests per second to the API server, watches and the lease apart; 0: as many as it takes.",
)
@_count("--kube-api-burst", _DEFAULTS.kube_api_burst, "How many of them may go at once, if --kube-api-qps is set.")
@click.option(
    "--gang-scheduler-name",
    default="",
    metavar="NAME",
    help="Schedule the pods of a job together: volcano, or the name of a scheduler with the coscheduling plugin.",
)
@bool_flag(
    "--whole-group-restart",
    default=_DEFAULTS.settings.group_restart,
    help="A failed pod takes all others of its job with it, unless the job says otherwise.",
)
@click.option(
    "--dead-node-seconds",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Replace pods whose node has been gone for so long, unless the job says otherwise (default: never).",
)
@_text(
    "--pytorch-init-container-image",
    _WAITING.image,
    "IMAGE",
    'The image in which PyTorch workers wait for their master\'s name; "" switches the waiting off.',
)
@_count("--pytorch-init-container-max-tries", _WAITING.max_tries, "How often they ask before they fail.")
@click.option(
    "--pytorch-init-container-template-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"A YAML list of containers in its place (default: {DEFAULT_TEMPLATE} if it is there).",
)
@bool_flag(
    "--pytorch-init-container-wait-for-port",
    default=_WAITING.wait_for_port,
    help="Wait until the master's port answers, not its name alone.",
)
@click.option(
    "--mpi-kubectl-delivery-image",
    metavar="IMAGE",
    help="Accepted for the sake of existing Deployments; without effect, there is no MPIJob here yet.",
)
@_text("--metrics-bind-address", ":8080", "HOST:PORT", "Where to serve /metrics; 0: nowhere.")
@_text("--health-probe-bind-address", ":8081", "HOST:PORT", "Where to serve /healthz and /readyz; 0: nowhere.")
@bool_flag("--leader-elect", default=False, help="Work only while holding a lease: for more than one replica.")
@_text("--leader-election-id", _LEASE.name, "NAME", "The lease's name.")
@click.option(
    "--leader-election-namespace",
    metavar="NAME",
    help="The lease's namespace (default: $MY_POD_NAMESPACE, else that of this pod or of the kubeconfig's context).",
)
@_duration(
    "--leader-election-lease-duration",
    _LEASE.lease_seconds,
    "Without a sign of life for so long, another one takes over.",
)
@_duration("--leader-election-renew-deadline", _LEASE.renew_seconds, "Without a renewal for so long, the leader ends.")
@_duration("--leader-election-retry-period", _LEASE.retry_seconds, "Between two tries to get or renew the lease.")
@click.option(
    "--webhook-server-port",
    type=click.IntRange(0, 65535),
    default=_WEBHOOKS.port,
    show_default=True,
    help="Where to serve the admission webhooks; 0: nowhere.",
)
@_text("--webhook-service-name", _WEBHOOKS.service, "NAME", "The Service through which the API server reaches them.")
@_text("--webhook-secret-name", _WEBHOOKS.secret, "NAME", "The Secret that holds their certificates.")
@_text(
    "--webhook-configuration-name",
    _WEBHOOKS.configuration,
    "NAME",
    "The ValidatingWebhookConfiguration that gets their authority.",
)
@bool_flag(
    "--zap-devel",
    default=None,
    help="Defaults for development (debug, console) or, if false, for production (info, JSON).",
)
@click.option("--zap-encoder", type=click.Choice(ENCODERS), help="The form of the log (default: console).")
@click.option(
    "--zap-log-level", type=parse_level, metavar="LEVEL", help="debug, info, error, panic or a number (default: info)."
)
@click.option(
    "--zap-stacktrace-level",
    type=click.Choice(STACKTRACE_LEVELS),
    help="Accepted, without effect: unexpected errors, and no others, come with a stack trace.",
)
@click.option(
    "--zap-time-encoding", type=click.Choice(list(TIME_ENCODINGS)), help="How the log writes times (default: iso8601)."
)
@click.option("-v", "--verbose", is_flag=True, help="Log every decision, as --zap-log-level debug does.")
def command(**flags: Any) -> None:
    """Run the operator beside a Kubernetes cluster.

    The embedded cluster has its own; this one is for any other. It runs until it gets SIGTERM or SIGINT. Flags that
    training-operator has too mean the same, in all of Go's spellings.
    """
    import asyncio
    import logging

    from trainwright.kube.client.kubeconfig import ConfigError
    from trainwright.operator.process import run_operator

    start_logging(
        zap_format(
            devel=flags["zap_devel"],
            encoder=flags["zap_encoder"],
            level=logging.DEBUG if flags["verbose"] else flags["zap_log_level"],
            time_encoding=flags["zap_time_encoding"],
        )
    )
    try:
        options = options_from(flags)
        for flag in unheeded(flags):
            logging.getLogger("trainwright.operator").warning("%s has no effect", flag)
        asyncio.run(run_operator(options))
    except (OperatorError, ConfigError) as error:
        raise Problem(str(error)) from error


def options_from(flags: dict[str, Any]) -> OperatorOptions:
    qps = flags["kube_api_qps"]
    return OperatorOptions(
        **{name: flags[name] for name in ("namespace", "kubeconfig", "context", "enable_scheme", "install_crds")},
        **{name: flags[name] for name in ("controller_threads", "parallel_writes", "kube_api_burst")},
        **{name: flags[name] for name in ("metrics_bind_address", "health_probe_bind_address")},
        kube_api_qps=qps if qps > 0 else None,
        settings=_settings(flags),
        leader_election=_leader_election(flags) if flags["leader_elect"] else None,
        webhooks=_webhooks(flags) if flags["webhook_server_port"] else None,
    )


def unheeded(flags: dict[str, Any]) -> list[str]:
    """The flags that were given for the sake of a Deployment, and that nothing here heeds."""
    return [
        f"--{name.replace('_', '-')}"
        for name in ("mpi_kubectl_delivery_image", "zap_stacktrace_level")
        if flags[name] is not None
    ]


def _settings(flags: dict[str, Any]) -> Settings:
    gang = flags["gang_scheduler_name"]
    return Settings(
        init_container=_init_container(flags) if flags["pytorch_init_container_image"] else None,
        gang=Gang(gang) if gang else None,
        group_restart=flags["whole_group_restart"],
        dead_node_seconds=flags["dead_node_seconds"],
    )


def _init_container(flags: dict[str, Any]) -> InitContainer:
    return InitContainer(
        image=flags["pytorch_init_container_image"],
        max_tries=flags["pytorch_init_container_max_tries"],
        wait_for_port=flags["pytorch_init_container_wait_for_port"],
        template=read_template(flags["pytorch_init_container_template_file"]),
    )


def read_template(named: Path | None, default: Path = DEFAULT_TEMPLATE) -> InitTemplate | None:
    """None: there is none. A file that is there but cannot be used is an error, unlike upstream, which would go on
    with its own template and say nothing."""
    flag, path = "--pytorch-init-container-template-file", named or default
    if named is None and not path.exists():
        return None
    try:
        return parse_init_template(path.read_text())
    except OSError as error:
        raise OperatorError(f"{flag}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OperatorError(f"{flag}: {path} is not text in UTF-8") from None
    except InitTemplateError as error:
        raise OperatorError(f"{flag}: {path}: {error}") from None


def _leader_election(flags: dict[str, Any]) -> LeaderElectionOptions:
    return LeaderElectionOptions(
        name=flags["leader_election_id"],
        namespace=flags["leader_election_namespace"],
        lease_seconds=flags["leader_election_lease_duration"],
        renew_seconds=flags["leader_election_renew_deadline"],
        retry_seconds=flags["leader_election_retry_period"],
    )


def _webhooks(flags: dict[str, Any]) -> WebhookOptions:
    return WebhookOptions(
        port=flags["webhook_server_port"],
        service=flags["webhook_service_name"],
        secret=flags["webhook_secret_name"],
        configuration=flags["webhook_configuration_name"],
    )
