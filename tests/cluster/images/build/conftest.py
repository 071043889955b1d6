"""Builds in the test's process, on an image made of this machine's shell and Python."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.images.machine_image import add_machine_image
from trainwright.cluster.images.build.command import build_image
from trainwright.cluster.images.build.messages import BuildError, Progress
from trainwright.cluster.images.build.options import BuildOptions, Unreachable
from trainwright.cluster.images.formats import Platform
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image, ImageStore

BASE = "machine"


@dataclass
class Build:
    """A context and a store; each call builds a Dockerfile."""

    store: ImageStore
    context: Path
    capture: Callable[[], str]
    output: str = ""
    """What the last build printed."""
    pulled: Callable[[ImageReference, Platform], Image | Unreachable] = lambda *_: Unreachable("no registry answers")

    def write(self, path: str, content: str | bytes = "", mode: int = 0o644) -> Path:
        file = self.context / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)
        return file

    def __call__(self, text: str, *, quiet: bool = False, path: Path | None = None, **options: Any) -> Image:
        if path is None:
            path = self.context.parent / "Dockerfile"
            path.write_text(text)
        tags = [ImageReference.parse("built")]
        settings = replace(BuildOptions(dockerfile=path, context=self.context, tags=tags), **options)
        self.capture()
        try:
            return build_image(self.store, settings, self.pulled, Progress(quiet=quiet))
        finally:
            self.output = self.capture()

    def failure(self, text: str, **options: Any) -> str:
        with pytest.raises(BuildError) as caught:
            self(text, **options)
        return str(caught.value)

    def file(self, image: Image, path: str) -> Path:
        """The topmost file of this path in the layers."""
        for layer in UnpackedLayers(self.store).directories(image):
            found = layer / path.lstrip("/")
            if found.is_symlink() or found.exists():
                return found
        raise FileNotFoundError(path)

    @property
    def steps(self) -> list[str]:
        """What was printed, with ids as `ID`."""
        return re.sub(r"\b[0-9a-f]{12}\b", "ID", self.output).splitlines()


@pytest.fixture(scope="session")
def build_store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    """Shared, because its base takes a second to make; contexts differ, so that no test finds another's cache."""
    store = ImageStore(tmp_path_factory.mktemp("store"))
    add_machine_image(store, BASE)
    return store


@pytest.fixture
def build(build_store: ImageStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Build]:
    context = tmp_path / "context"
    context.mkdir()
    yield Build(build_store, context, lambda: "".join(capfd.readouterr()))
    build_store.remove(ImageReference.parse("built"))
