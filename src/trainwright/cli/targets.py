"""Which cluster a command means. One rule for all: the embedded one, unless the user names another.

`--context`, `--kubeconfig` or $TRAINWRIGHT_CONTEXT name another; a command that changes something prints its target.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.cli.errors import Problem
from trainwright.cluster.embedded import CONTEXT, DataDir
from trainwright.kube.client.kubeconfig import ClusterConfig, ConfigError, load_kubeconfig


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What the user said about the target."""

    context: str | None = None
    kubeconfig: Path | None = None
    data_dir: Path | None = None


class NotRunning(Problem):
    """The embedded cluster is meant, and there is none."""


@dataclass(frozen=True, slots=True)
class Target:
    config: ClusterConfig
    embedded: bool
    kubectl: str
    """How to call kubectl for this cluster, for suggestions."""
    flags: str = ""
    """What to add to our own commands so that they mean this cluster again."""
    python: str = ""
    """The Python of pods whose job names none; empty where images bring theirs."""

    @property
    def name(self) -> str:
        if self.embedded:
            return f"embedded cluster at {self.config.server}"
        return f"context {self.config.context} at {self.config.server}"

    @property
    def line(self) -> str:
        return f"→ {self.name} (namespace {self.config.namespace})"

    def in_namespace(self, namespace: str | None) -> "Target":
        return replace(self, config=replace(self.config, namespace=namespace)) if namespace else self


def data_dir_at(path: Path | None) -> DataDir:
    return DataDir(path.absolute()) if path else DataDir.default()


def find_target(options: TargetOptions, environment: Mapping[str, str] = os.environ) -> Target:
    """The cluster that is meant, with everything needed to reach it; a Problem says what to do if there is none."""
    if options.data_dir and (options.context or options.kubeconfig):
        raise Problem("--data-dir means an embedded cluster, --context and --kubeconfig mean another: give one of them")
    context = options.context or (None if options.data_dir else environment.get("TRAINWRIGHT_CONTEXT"))
    if context or options.kubeconfig:
        return _named_cluster(options.kubeconfig, context)
    return embedded_cluster(data_dir_at(options.data_dir))


def embedded_cluster(data_dir: DataDir) -> Target:
    flags = "" if data_dir == DataDir.default() else f" --data-dir {data_dir.path}"
    running = data_dir.running()
    if running is None:
        raise NotRunning(
            f"no embedded cluster runs in {data_dir.path}: start it with `trainwright up --detach{flags}`, "
            "or name another cluster with --context"
        )
    try:
        config = load_kubeconfig(data_dir.kubeconfig, context=CONTEXT)
    except ConfigError as error:
        raise Problem(str(error)) from error
    kubectl = f"kubectl --kubeconfig {data_dir.kubeconfig}"
    return Target(config, embedded=True, kubectl=kubectl, flags=flags, python=running.python)


def _named_cluster(kubeconfig: Path | None, context: str | None) -> Target:
    try:
        config = load_kubeconfig(kubeconfig, context=context)
    except ConfigError as error:
        raise Problem(str(error)) from error
    flags = f" --kubeconfig {kubeconfig} --context {config.context}" if kubeconfig else f" --context {config.context}"
    # The context that `up` wrote into the user's kubeconfig leads to the embedded cluster as well.
    running = DataDir.default().running()
    embedded = running is not None and running.server == config.server
    python = running.python if running and embedded else ""
    return Target(config, embedded=embedded, kubectl=f"kubectl{flags}", flags=flags, python=python)
