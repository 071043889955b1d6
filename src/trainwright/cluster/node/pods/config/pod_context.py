"""What a pod is started with beside its spec: the node, and its own address, directories, devices and images."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.pod_fields import NodeFields
from trainwright.cluster.node.pods.config.container_image import ContainerImage, is_host_image
from trainwright.cluster.node.pods.config.security_context import NodeUser
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS, NODE_NAME
from trainwright.objects.node_annotations import PYTHON

HOSTNAME_FILE = "hostname"
"""In the pod's directory: what images see as /etc/hostname."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    node: NodeConfig
    address: str
    directory: str
    hosts_file: str
    private_homes: tuple[str, ...] = ()
    """Home directories that pods of this namespace have for themselves, empty at first."""
    installations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By Python: its directories, that of a virtual environment and that of the Python behind it."""
    service_variables: Mapping[str, str] = field(default_factory=dict)
    """The variables by which programs find Services; those of the API server among them."""
    started_at: float = 0.0
    """When the node accepted the pod, in seconds since the epoch: activeDeadlineSeconds begin then."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Name -> address of other pods, at `plain`, where the pod has no /etc/hosts of its own."""
    gpus: Mapping[str, tuple[Gpu, ...]] | None = None
    """Those of each container; None on a machine that has none."""
    shared_memory: str = ""
    """The directory in memory that containers with GPUs share with those of other pods of their namespace."""
    images: Mapping[str, ContainerImage] = field(default_factory=dict)
    """By name of the container; one without an image runs on the files of this machine."""
    has_resolver: bool = False
    """True if this machine has an /etc/resolv.conf."""
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
            "spec.nodeName": NODE_NAME,
            "status.podIP": context.address,
            "status.podIPs": context.address,
            "status.hostIP": NODE_ADDRESS,
            "status.hostIPs": NODE_ADDRESS,
        },
        allocatable=context.node.machine.allocatable,
    )


def node_user(context: PodContext) -> NodeUser:
    return NodeUser(
        level=context.node.sandbox.level,
        user=context.node.user,
        user_namespace=context.node.sandbox.user_namespace,
        has_many_users=context.node.has_many_users,
    )


def volume_directory(context: PodContext) -> str:
    return posixpath.join(context.directory, "volumes")


def image_of(spec: Object, context: PodContext) -> ContainerImage:
    """The image of the container with this spec."""
    return context.images.get(spec["name"], ContainerImage(unknown=not is_host_image(str(spec.get("image") or ""))))


def pod_python(annotations: Mapping[str, str], context: PodContext) -> str:
    return annotations.get(PYTHON) or context.node.settings.python


def installation(python: str) -> str:
    """PREFIX of PREFIX/bin/python: the directory of a virtual environment or installation."""
    return posixpath.dirname(posixpath.dirname(python))
