"""Images that every node has: they are small layers over the files of this machine."""

from functools import cached_property
from pathlib import Path

from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.images import kubectl
from trainwright.objects.node_annotations import KUBECTL_DELIVERY_IMAGE

_KUBECTL = "usr/local/bin/kubectl"


class BuiltinImages:
    """`directory` is the node's: the layers are in it."""

    def __init__(self, directory: Path, *, can_mount: bool) -> None:
        self._directory = directory / "builtin-images"
        self._can_mount = can_mount

    def find(self, name: str, container: str) -> ContainerImage | WaitingReason | None:
        """The image of that name, or why it cannot run; None for names that are not built in."""
        if name != KUBECTL_DELIVERY_IMAGE:
            return None
        if not self._can_mount:
            message = (
                "launchers of MPIJobs expect files at fixed paths, which a container can only have at sandbox overlay: "
                "run the cluster as root, or allow unprivileged user namespaces"
            )
            return WaitingReason(reason="ImageNeedsOverlay", message=message, container=container)
        return ContainerImage(image_id=name, layers=(str(self._kubectl_delivery),))

    @cached_property
    def _kubectl_delivery(self) -> Path:
        """The layer; its program is that of this version, so it is written once for each process of the cluster."""
        layer = self._directory / "kubectl-delivery"
        program, content = layer / _KUBECTL, Path(kubectl.__file__).read_bytes()
        if not program.exists() or program.read_bytes() != content:
            program.parent.mkdir(parents=True, exist_ok=True)
            unfinished = program.with_suffix(".new")
            unfinished.write_bytes(content)
            unfinished.chmod(0o755)
            unfinished.rename(program)
        return layer
