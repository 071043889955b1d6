"""`trainwright operator`: runs the operator against a Kubernetes cluster, with upstream's flags.

docs/reference/operator-flags.md compares each flag with training-operator's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.flags import F, GoCommand, bool_flag, duration
from trainwright.cli.logging import ENCODERS, STACKTRACE_LEVELS, TIME_ENCODINGS, parse_level, start_logging, zap_format
from trainwright.engine.init_template import InitTemplate, InitTemplateError, parse_init_template
from trainwright.engine.settings import InitContainer, KubectlDelivery, Settings
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions

DEFAULT_TEMPLATE = Path("/etc/config/initContainer.yaml")
_DEFAULTS, _INIT, _LEASE, _WEBHOOKS = OperatorOptions(), InitContainer(), LeaderElectionOptions(), WebhookOptions()
_DELIVERY = KubectlDelivery()


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
    help="Watch only this namespace (default: $KUBEFLOW_NAMESPACE, else all namespaces).",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The kubeconfig file (default: in-cluster configuration, else $KUBECONFIG or ~/.kube/config).",
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig (default: the current context).")
@click.option(
    "--enable-scheme",
    multiple=True,
    metavar="KIND",
    help="A kind to reconcile, such as pytorchjob; can be repeated (default: all kinds).",
)
@click.option("--install-crds", is_flag=True, help="Install or update the CustomResourceDefinitions at start.")
@_count("--controller-threads", _DEFAULTS.controller_threads, "Maximum number of concurrent reconciles.")
@_count("--parallel-writes", _DEFAULTS.parallel_writes, "Maximum number of concurrent write requests.")
@click.option(
    "--kube-api-qps",
    type=float,
    default=0.0,
    show_default=True,
    help="Maximum requests per second to the API server, except watches and the lease; 0 means no limit.",
)
@_count("--kube-api-burst", _DEFAULTS.kube_api_burst, "Maximum burst of requests, if --kube-api-qps is set.")
@click.option(
    "--gang-scheduler-name",
    default="",
    metavar="NAME",
    help="Gang scheduler for all jobs: volcano, or the name of a scheduler with the coscheduling plugin.",
)
@bool_flag(
    "--whole-group-restart",
    default=_DEFAULTS.settings.group_restart,
    help="Restart all pods of a job when one fails. Jobs can override it by annotation.",
)
@click.option(
    "--dead-node-seconds",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Replace pods whose node has been lost for this long (default: never). Jobs can override it by annotation.",
)
@bool_flag(
    "--read-failed-pod-logs",
    default=_DEFAULTS.read_failed_pod_logs,
    help="Read the last log lines of failed pods, to name the cause in events and in status.failure of jobs.",
)
@click.option(
    "--cluster-domain",
    default="",
    metavar="DOMAIN",
    envvar="CUSTOM_CLUSTER_DOMAIN",
    help="Domain of the addresses in TF_CONFIG, such as cluster.local (default: $CUSTOM_CLUSTER_DOMAIN, else none).",
)
@_text(
    "--pytorch-init-container-image",
    _INIT.image,
    "IMAGE",
    'Image of the init container in which workers wait for the master\'s DNS name; "" disables it.',
)
@_count(
    "--pytorch-init-container-max-tries",
    _INIT.max_tries,
    "How often it looks up the name before it fails.",
)
@click.option(
    "--pytorch-init-container-template-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"YAML template of the init containers (default: {DEFAULT_TEMPLATE} if it exists).",
)
@bool_flag(
    "--pytorch-init-container-wait-for-port",
    default=_INIT.wait_for_port,
    help="Also wait until the master's port accepts connections.",
)
@_text(
    "--mpi-kubectl-delivery-image",
    _DELIVERY.image,
    "IMAGE",
    "Image of the init container that puts kubectl into the launchers of MPIJobs.",
)
@_text("--metrics-bind-address", ":8080", "HOST:PORT", "Address of /metrics; 0 disables it.")
@_text("--health-probe-bind-address", ":8081", "HOST:PORT", "Address of /healthz and /readyz; 0 disables them.")
@bool_flag("--leader-elect", default=False, help="Enable leader election, for more than one replica.")
@_text("--leader-election-id", _LEASE.name, "NAME", "The name of the Lease.")
@click.option(
    "--leader-election-namespace",
    metavar="NAME",
    help="The namespace of the Lease (default: $MY_POD_NAMESPACE, else that of the pod or the context).",
)
@_duration(
    "--leader-election-lease-duration",
    _LEASE.lease_seconds,
    "How long a replica waits after the last renewal before it takes over.",
)
@_duration(
    "--leader-election-renew-deadline",
    _LEASE.renew_seconds,
    "How long the leader retries before it exits.",
)
@_duration("--leader-election-retry-period", _LEASE.retry_seconds, "Time between two attempts to acquire or renew.")
@click.option(
    "--webhook-server-port",
    type=click.IntRange(0, 65535),
    default=_WEBHOOKS.port,
    show_default=True,
    help="Port of the admission webhooks; 0 disables them.",
)
@_text("--webhook-service-name", _WEBHOOKS.service, "NAME", "The Service of the webhooks.")
@_text("--webhook-secret-name", _WEBHOOKS.secret, "NAME", "The Secret with the certificates of the webhooks.")
@_text(
    "--webhook-configuration-name",
    _WEBHOOKS.configuration,
    "NAME",
    "The ValidatingWebhookConfiguration whose caBundle the operator sets.",
)
@bool_flag(
    "--zap-devel",
    default=None,
    help="Defaults for development (debug, console) or, if false, for production (info, JSON).",
)
@click.option("--zap-encoder", type=click.Choice(ENCODERS), help="The format of the log (default: console).")
@click.option(
    "--zap-log-level", type=parse_level, metavar="LEVEL", help="debug, info, error, panic or a number (default: info)."
)
@click.option(
    "--zap-stacktrace-level",
    type=click.Choice(STACKTRACE_LEVELS),
    help="Accepted for compatibility, without effect: only unexpected errors are logged with a stack trace.",
)
@click.option(
    "--zap-time-encoding",
    type=click.Choice(list(TIME_ENCODINGS)),
    help="The format of timestamps (default: iso8601).",
)
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level, like --zap-log-level debug.")
def command(**flags: Any) -> None:
    """Run the operator against a Kubernetes cluster.

    The embedded cluster runs its own operator; this command is for other clusters. It runs until SIGTERM or SIGINT. The
    flags of training-operator have the same meaning and accept Go's syntax.
    """
    import asyncio
    import logging

    from trainwright.kube.client.kubeconfig import ConfigError
    from trainwright.operator.main import run_operator

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
        for flag in ignored_flags(flags):
            logging.getLogger("trainwright.operator").warning("%s has no effect", flag)
        asyncio.run(run_operator(options))
    except (OperatorError, ConfigError) as error:
        raise CommandError(str(error)) from error


def options_from(flags: dict[str, Any]) -> OperatorOptions:
    qps = flags["kube_api_qps"]
    return OperatorOptions(
        **{name: flags[name] for name in ("namespace", "kubeconfig", "context", "enable_scheme", "install_crds")},
        **{name: flags[name] for name in ("controller_threads", "parallel_writes", "kube_api_burst")},
        **{name: flags[name] for name in ("metrics_bind_address", "health_probe_bind_address", "read_failed_pod_logs")},
        kube_api_qps=qps if qps > 0 else None,
        settings=_settings(flags),
        leader_election=_leader_election(flags) if flags["leader_elect"] else None,
        webhooks=_webhooks(flags) if flags["webhook_server_port"] else None,
    )


def ignored_flags(flags: dict[str, Any]) -> list[str]:
    """The given flags that have no effect."""
    return [f"--{name.replace('_', '-')}" for name in ("zap_stacktrace_level",) if flags[name] is not None]


def _settings(flags: dict[str, Any]) -> Settings:
    gang = flags["gang_scheduler_name"]
    return Settings(
        init_container=_init_container(flags) if flags["pytorch_init_container_image"] else None,
        cluster_domain=flags["cluster_domain"],
        gang=GangScheduler(gang) if gang else None,
        group_restart=flags["whole_group_restart"],
        dead_node_seconds=flags["dead_node_seconds"],
        kubectl_delivery=KubectlDelivery(image=flags["mpi_kubectl_delivery_image"]),
    )


def _init_container(flags: dict[str, Any]) -> InitContainer:
    return InitContainer(
        image=flags["pytorch_init_container_image"],
        max_tries=flags["pytorch_init_container_max_tries"],
        wait_for_port=flags["pytorch_init_container_wait_for_port"],
        template=read_template(flags["pytorch_init_container_template_file"]),
    )


def read_template(given: Path | None, default: Path = DEFAULT_TEMPLATE) -> InitTemplate | None:
    """None if there is no file. An unusable file is an error; upstream would silently use its built-in template."""
    flag, path = "--pytorch-init-container-template-file", given or default
    if given is None and not path.exists():
        return None
    try:
        return parse_init_template(path.read_text())
    except OSError as error:
        raise OperatorError(f"{flag}: failed to read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OperatorError(f"{flag}: {path} is not UTF-8 text") from None
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
