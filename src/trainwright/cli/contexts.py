"""The context of an embedded cluster in the user's kubeconfig, for kubectl and other tools."""

import contextlib
import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainwright.cluster.facade import CONTEXT, ClusterError, DataDir, check_private_file
from trainwright.kube.client.kubeconfig import (
    ClusterConfig,
    ConfigError,
    load_kubeconfig,
    merge_into_kubeconfig,
    remove_from_kubeconfig,
)

_CONNECT_SECONDS = 0.5


def user_kubeconfig(given: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The file that kubectl would write to."""
    if given:
        return given.absolute()
    listed = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0]).absolute() if listed else Path.home() / ".kube" / "config"


def add_context(kubeconfig: Path, config: ClusterConfig, data: DataDir) -> str:
    """Adds or updates the context of the cluster; returns its name. Raises ConfigError or OSError."""
    try:
        check_private_file(kubeconfig)  # it says which program reads the token of the cluster's administrator
    except ClusterError as error:
        raise ConfigError(str(error)) from error
    name = context_name(kubeconfig, config, data)
    # The token itself stays in the data directory, which pods do not see: kubeconfigs are anywhere.
    merge_into_kubeconfig(
        kubeconfig, name=name, server=config.server, ca_data=config.ca_data or b"", credential=data.credential
    )
    return name


def context_name(kubeconfig: Path, config: ClusterConfig, data: DataDir) -> str:
    """`trainwright`, or `trainwright-NAME` of a named cluster. A context of another cluster is not replaced: then the
    name of the data directory is added."""
    name, other_name = _names(data)
    other = _find(kubeconfig, name)
    return name if other is None or _same_user(other, config) or not _is_in_use(other, data) else other_name


def remove_context(kubeconfig: Path, data: DataDir) -> None:
    """Removes the context of this cluster, if it is there: kubectl would only say that the connection is refused."""
    own = _find(data.kubeconfig, CONTEXT)
    for name in _names(data):
        found = _find(kubeconfig, name)
        if own is not None and found is not None and _same_user(found, own):
            with contextlib.suppress(ConfigError, OSError):
                remove_from_kubeconfig(kubeconfig, name=name)


def _same_user(first: ClusterConfig, second: ClusterConfig) -> bool:
    return _token(first) == _token(second)


def _token(config: ClusterConfig) -> str | None:
    """The token in a kubeconfig that `add_context` wrote."""
    if config.exec_plugin is None or not config.exec_plugin.args:
        return config.token
    try:
        return str(json.loads(Path(config.exec_plugin.args[-1]).read_bytes())["status"]["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _names(data: DataDir) -> tuple[str, str]:
    """The name of the context, and another one in case that it is taken."""
    name = f"{CONTEXT}-{data.cluster_name}" if data.cluster_name else CONTEXT
    return name, f"{CONTEXT}-{re.sub(r'[^A-Za-z0-9._-]', '_', data.path.name)}"


def _find(kubeconfig: Path, name: str) -> ClusterConfig | None:
    try:
        return load_kubeconfig(kubeconfig, context=name)
    except (ConfigError, OSError):
        return None


def _is_in_use(config: ClusterConfig, data: DataDir) -> bool:
    """True for the context of a cluster that answers, or that can be started again by its name."""
    for other in DataDir.all_named():
        if other != data and (own := _find(other.kubeconfig, CONTEXT)) is not None and _same_user(own, config):
            return True
    address = urlsplit(config.server)
    try:
        with socket.create_connection((address.hostname or "", address.port or 443), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False
