"""Images that every node has: they are small layers over the files of this machine."""

import asyncio
import posixpath
import subprocess
from pathlib import Path

from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.images import kubectl
from trainwright.cluster.node.pods.images.standalone_python import command, make_standalone
from trainwright.cluster.node.supervisor.files import API_SOCKET
from trainwright.objects.node_annotations import KUBECTL_DELIVERY_IMAGE

_BIN = "/usr/local/lib/trainwright/bin"
"""A directory that this machine does not have in its PATH: a kubectl of the machine must not be found first."""
_PYTHON = "/run/trainwright/kubectl"
"""Where all containers of a pod with kubectl have the Python that runs it: their images need not have one."""
_API = posixpath.dirname(kubectl.API_SOCKET)
"""Where they have the directory of the API server's Unix socket, which a restart of the cluster makes anew."""
_SCRIPT = f"""\
#!/bin/sh
# Nothing of the image may change how it runs: libraries, locales.
unset LD_PRELOAD
export LC_ALL=C
exec {" ".join(command(_PYTHON, "kubectl"))} "$@"
"""
MODULES = ("os", "sys", "_socket", "select", "json", "time", "encodings.latin_1", "encodings.ascii")


class BuiltinImages:
    """`directory` is the node's: the layers are in it."""

    def __init__(self, directory: Path, *, can_mount: bool) -> None:
        self._directory = directory / "builtin-images"
        self._api = (directory / API_SOCKET).parent
        self._can_mount = can_mount
        self._lock = asyncio.Lock()
        self._kubectl_delivery: ContainerImage | None = None

    async def find(self, name: str, container: str) -> ContainerImage | WaitingReason | None:
        """The image of that name, or why it cannot run; None for names that are not built in."""
        if name != KUBECTL_DELIVERY_IMAGE:
            return None
        if not self._can_mount:
            message = (
                "launchers of MPIJobs expect files at fixed paths, which a container can only have at sandbox overlay: "
                "run the cluster as root, or allow unprivileged user namespaces"
            )
            return WaitingReason(reason="ImageNeedsOverlay", message=message, container=container)
        async with self._lock:
            if self._kubectl_delivery is None:
                try:
                    self._kubectl_delivery = await asyncio.to_thread(self._make_kubectl_delivery)
                except (OSError, subprocess.SubprocessError) as error:
                    message = f"failed to copy the Python that runs kubectl in launchers: {error}"
                    return WaitingReason(reason="ImageInspectError", message=message, container=container)
        return self._kubectl_delivery

    def _make_kubectl_delivery(self) -> ContainerImage:
        """Made once for each process of the cluster: kubectl is that of this version."""
        layer = self._directory / "kubectl-delivery"
        script = Path(f"{layer}{_BIN}/kubectl")
        if not script.exists() or script.read_text() != _SCRIPT:
            script.parent.mkdir(parents=True, exist_ok=True)
            unfinished = script.with_suffix(".new")
            unfinished.write_text(_SCRIPT)
            unfinished.chmod(0o755)
            unfinished.rename(script)
        self._api.mkdir(parents=True, exist_ok=True)
        python = make_standalone(self._directory / "python", Path(kubectl.__file__), MODULES)
        return ContainerImage(
            environment={"PATH": _BIN},
            image_id=KUBECTL_DELIVERY_IMAGE,
            layers=(str(layer),),
            pod_mounts={_PYTHON: str(python), _API: str(self._api)},
        )
