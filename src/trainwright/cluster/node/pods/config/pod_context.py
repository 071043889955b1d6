"""What the node adds to a pod: addresses, directories, devices, its Python."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from trainwright.cluster.node.devices.driver_files import DriverFiles
from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.pod_fields import NodeFields
from trainwright.cluster.node.pods.config.container_image import ContainerImage, is_host_image
from trainwright.cluster.node.pods.config.security_context import NodeUser
from trainwright.cluster.node.volumes.nfs import NfsSupport
from trainwright.objects import Object
from trainwright.objects.node_annotations import PYTHON

HOSTNAME_FILE = "hostname"
"""In the pod's directory: what images see as /etc/hostname."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    node_name: str
    host_address: str
    address: str
    directory: str
    hosts_file: str
    level: str
    user_namespace: bool = False
    own_ports: bool = False
    """True if the supervisor binds the sockets of the pod to its own address."""
    python: str
    home: str
    """The value of HOME."""
    shared_home: str | None = None
    """The home directory that pods share with this machine; None if there is none to share."""
    private_homes: tuple[str, ...] = ()
    """Home directories that pods of this namespace have for themselves, empty at first."""
    installations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By Python: its directories, that of a virtual environment and that of the Python behind it."""
    open_files: int | None = None
    """The soft limit of open files with which the cluster was started."""
    provisioned: str | None = None
    """The directory, below a hidden one, of the volumes that the default StorageClass provides."""
    user: int = 1000
    """The user of the node's processes."""
    allocatable: Mapping[str, Fraction] = field(default_factory=dict)
    service_variables: Mapping[str, str] = field(default_factory=dict)
    """The variables by which programs find Services; those of the API server among them."""
    nfs: NfsSupport = field(default_factory=NfsSupport)
    cgroups: Mapping[str, str] = field(default_factory=dict)
    """The node's directory of each cgroup controller; empty if limits cannot be enforced."""
    started_at: float = 0.0
    """When the node accepted the pod, in seconds since the epoch: activeDeadlineSeconds begin then."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name -> address of other pods, at `plain`, where the pod has no /etc/hosts of its own."""
    gpus: Mapping[str, tuple[Gpu, ...]] | None = None
    """Those of each container; None on a machine that has none."""
    shared_memory: str = ""
    """The directory in memory that containers with GPUs share with those of other pods of their namespace."""
    host_id: str = ""
    """The same for all pods of this machine."""
    images: Mapping[str, ContainerImage] = field(default_factory=dict)
    """By name of the container; one without an image runs on the files of this machine."""
    has_resolver: bool = False
    """True if this machine has an /etc/resolv.conf."""
    has_many_users: bool = False
    """True if the user of the node has subordinate ids for the users of images."""
    driver: DriverFiles = field(default_factory=DriverFiles)
    """The files of the NVIDIA driver."""
    open_mpis: frozenset[str] = frozenset()
    """Installations of Python with the Open MPI of PyPI, which finds its files by OPAL_PREFIX alone."""


@dataclass(frozen=True, slots=True)
class PodWarning:
    """A Warning event on the pod."""

    reason: str
    message: str


def node_fields(context: PodContext) -> NodeFields:
    return NodeFields(
        values={
            "spec.nodeName": context.node_name,
            "status.podIP": context.address,
            "status.podIPs": context.address,
            "status.hostIP": context.host_address,
            "status.hostIPs": context.host_address,
        },
        allocatable=context.allocatable,
    )


def node_user(context: PodContext) -> NodeUser:
    return NodeUser(
        level=context.level,
        user=context.user,
        user_namespace=context.user_namespace,
        has_many_users=context.has_many_users,
    )


def volume_directory(context: PodContext) -> str:
    return posixpath.join(context.directory, "volumes")


def image_of(spec: Object, context: PodContext) -> ContainerImage:
    """Of the container with this spec."""
    return context.images.get(spec["name"], ContainerImage(unknown=not is_host_image(str(spec.get("image") or ""))))


def pod_python(annotations: Mapping[str, str], context: PodContext) -> str:
    return annotations.get(PYTHON) or context.python


def installation(python: str) -> str:
    """PREFIX of PREFIX/bin/python: the directory of a virtual environment or installation."""
    return posixpath.dirname(posixpath.dirname(python))
