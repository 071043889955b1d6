"""The cluster that a command uses: the embedded one unless the user selects another.

--context, --kubeconfig and $TRAINWRIGHT_CONTEXT select another one. Commands that change something print their target.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.cli.errors import CommandError
from trainwright.cli.flags import TargetOptions
from trainwright.cli.pods_python import BY_FLAG
from trainwright.cluster.facade import CONTEXT, ClusterError, ClusterRecord, DataDir
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, load_kubeconfig


class NotRunningError(CommandError):
    """The embedded cluster was selected, but it is not running."""


@dataclass(frozen=True, slots=True)
class Target:
    config: ClusterConfig
    embedded: bool
    kubectl: str
    """The kubectl command for this cluster, for suggestions."""
    flags: str = ""
    """The flags that select this cluster again, for suggestions."""
    python: str = ""
    """The default Python of pods; empty where they use the Python of their image."""
    python_named: bool = False
    """True if the user chose it with `up --python`."""
    data: DataDir | None = None
    """The data directory of the embedded cluster."""
    namespace_flag: str = ""
    """The flag that selects the namespace again, for suggestions."""

    @property
    def name(self) -> str:
        if self.embedded:
            return f"embedded cluster at {self.config.server}"
        return f"context {self.config.context} at {self.config.server}"

    @property
    def line(self) -> str:
        return f"→ {self.name} (namespace {self.config.namespace})"

    @property
    def up_command(self) -> str:
        """Starts the embedded cluster."""
        return f"trainwright up --detach{self.flags}"

    @property
    def is_down(self) -> bool:
        """True if the embedded cluster is not running, which does not say whether its pods are."""
        return self.data is not None and self.data.running() is None

    @property
    def has_moved(self) -> bool:
        """True if the embedded cluster was started again on another port, because its own was taken."""
        running = self.data.running() if self.data else None
        return running is not None and running.server != self.config.server

    def in_namespace(self, namespace: str | None) -> "Target":
        if not namespace:
            return self
        return replace(self, config=replace(self.config, namespace=namespace), namespace_flag=f" -n {namespace}")


def data_dir_at(path: Path | None) -> DataDir:
    """Raises CommandError for a directory that another user can write: commands believe what its files say."""
    data = DataDir(path.absolute()) if path else DataDir.default()
    try:
        data.check()
    except ClusterError as error:
        raise CommandError(str(error)) from error
    return data


def cluster_flag(data: DataDir) -> str:
    """The flag that selects the embedded cluster of this directory; empty for the default one."""
    if data == DataDir.default():
        return ""
    return f" --cluster {data.cluster_name}" if data.cluster_name else f" --data-dir {data.path}"


def find_target(options: TargetOptions, environment: Mapping[str, str] = os.environ) -> Target:
    """The selected cluster and its credentials; NotRunningError if the embedded cluster is selected but not running."""
    if options.data_dir and (options.context or options.kubeconfig):
        raise CommandError(
            "--cluster and --data-dir cannot be combined with --context or --kubeconfig: they select different clusters"
        )
    context = options.context or (None if options.data_dir else environment.get("TRAINWRIGHT_CONTEXT"))
    if context or options.kubeconfig:
        return _named_cluster(options.kubeconfig, context)
    return embedded_cluster(data_dir_at(options.data_dir))


def embedded_cluster(data_dir: DataDir) -> Target:
    flags = cluster_flag(data_dir)
    running = data_dir.running()
    if running is None:
        raise NotRunningError(
            f"no embedded cluster is running in {data_dir.path}: start it with `trainwright up --detach{flags}`, "
            "or select another cluster with --context"
        )
    try:
        config = load_kubeconfig(data_dir.kubeconfig, context=CONTEXT)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    kubectl = f"kubectl --kubeconfig {data_dir.kubeconfig}"
    return _embedded(config, running, kubectl=kubectl, flags=flags, data=data_dir)


def _named_cluster(kubeconfig: Path | None, context: str | None) -> Target:
    try:
        config = load_kubeconfig(kubeconfig, context=context)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    flags = f" --kubeconfig {kubeconfig} --context {config.context}" if kubeconfig else f" --context {config.context}"
    # A context that `up` has written into the user's kubeconfig is an embedded cluster too.
    for data in DataDir.all_named():
        running = data.running() if data.is_trusted else None
        if running is not None and running.server == config.server:
            return _embedded(config, running, kubectl=f"kubectl{flags}", flags=flags, data=data)
    return Target(config, embedded=False, kubectl=f"kubectl{flags}", flags=flags)


def _embedded(config: ClusterConfig, running: ClusterRecord, *, kubectl: str, flags: str, data: DataDir) -> Target:
    return Target(
        config,
        embedded=True,
        kubectl=kubectl,
        flags=flags,
        python=running.python,
        python_named=running.python_origin == BY_FLAG,
        data=data,
    )
