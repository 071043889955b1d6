"""What the running node knows for all its pods: the settings that the user chose, and what it found on this machine."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path

from trainwright.cluster.node.devices.nvidia import DriverFiles
from trainwright.cluster.node.machine import Machine
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox
from trainwright.cluster.node.volumes.sources import NfsSupport
from trainwright.cluster.node_settings import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    settings: NodeSettings
    directory: Path
    pod_network: IPv4Network
    """The addresses of pods."""
    address_mark: int
    """The descriptor by which supervisors keep these addresses from other clusters."""
    sandbox: Sandbox
    supervisor_python: str = sys.executable
    machine: Machine
    user: int
    """The user of the node's processes."""
    session_secret: bytes = b""
    """The secret of the keys with which sessions are opened in pods."""
    home: str
    shared_home: str | None
    homes: tuple[str, ...] = ()
    """Home directories of this machine, which pods of some namespaces do not see."""
    find_hidden: Callable[[], tuple[str, ...]]
    """The directories that pods must not see; other clusters may have come since the start."""
    open_files: int
    """The limit of pods."""
    provisioned: str | None = None
    service_variables: dict[str, str] = field(default_factory=dict)
    nfs: NfsSupport = field(default_factory=NfsSupport)
    cgroups: Mapping[str, str] = field(default_factory=dict)
    limits_reason: str = ""
    """Why limits cannot be enforced."""
    images: Path
    """The directory with the store of images."""
    shared_memory: str = ""
    """The directory in memory of the containers with GPUs, with one for each namespace."""
    driver: DriverFiles = field(default_factory=DriverFiles)
    has_many_users: bool = False
    """True if the user has subordinate ids for the users of images."""
