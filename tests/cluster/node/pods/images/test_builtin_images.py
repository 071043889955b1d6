"""Images that every node has."""

import asyncio
import os
from pathlib import Path

from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.images.builtin_images import BuiltinImages

NAME = "trainwright/kubectl-delivery"


async def test_its_kubectl_is_found_before_one_of_the_machine(tmp_path: Path) -> None:
    image = await BuiltinImages(tmp_path, can_mount=True).find(NAME, "main")
    assert isinstance(image, ContainerImage)
    path, (layer,) = image.environment["PATH"], image.layers
    assert path not in os.defpath
    assert os.access(f"{layer}{path}/kubectl", os.X_OK)


async def test_it_is_made_once_for_launchers_that_start_together(tmp_path: Path) -> None:
    images = BuiltinImages(tmp_path, can_mount=True)
    first, second = await asyncio.gather(images.find(NAME, "main"), images.find(NAME, "main"))
    assert first is second


async def test_a_disk_on_which_it_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "builtin-images").write_text("not a directory")
    waiting = await BuiltinImages(tmp_path, can_mount=True).find(NAME, "main")
    assert isinstance(waiting, WaitingReason)
    assert waiting.message.startswith("failed to copy the Python that runs kubectl in launchers: [Errno ")


async def test_at_plain_it_says_what_it_needs(tmp_path: Path) -> None:
    images = BuiltinImages(tmp_path, can_mount=False)
    waiting = await images.find(NAME, "main")
    assert isinstance(waiting, WaitingReason)
    assert waiting.reason == "ImageNeedsOverlay"
    assert await images.find("trainwright/other", "main") is None
