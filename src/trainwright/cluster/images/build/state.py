"""An image while it is being built."""

from dataclasses import dataclass, field, replace

import msgspec

from trainwright.cluster.images.formats import (
    OCI_CONFIG,
    OCI_MANIFEST,
    Descriptor,
    History,
    ImageConfig,
    Manifest,
    digest_of,
)
from trainwright.cluster.images.store import Image


@dataclass
class BuildState:
    """The image after an instruction of a stage."""

    config: ImageConfig
    layers: list[Descriptor]
    key: str
    """Stands for everything that the state depends on."""
    origin: str = ""
    """What FROM named."""
    missing_base: str = ""
    """Why the host's files stand in for what FROM named; empty if they do not."""
    arguments: dict[str, str] = field(default_factory=dict)
    """Values of the ARGs that the stage has declared."""
    cmd_is_set: bool = False

    def next_stage(self) -> "BuildState":
        """As the base of another stage, which has its own ARGs."""
        return replace(self, config=self.config_copy(), layers=list(self.layers), arguments={}, cmd_is_set=False)

    def config_copy(self) -> ImageConfig:
        return ImageConfig.decode(self.config.encode())

    @property
    def uses_host_files(self) -> bool:
        return self.config.uses_host_files

    @property
    def image_id(self) -> str:
        return digest_of(self.config.encode())

    @property
    def short_id(self) -> str:
        return self.image_id.partition(":")[2][:12]

    def as_image(self) -> Image:
        """As an image that is not in the store's index."""
        encoded = self.config.encode()
        config = Descriptor(media_type=OCI_CONFIG, digest=digest_of(encoded), size=len(encoded))
        manifest = Manifest.of_oci(config, self.layers)
        data = manifest.encode()
        return Image(
            None, Descriptor(media_type=OCI_MANIFEST, digest=digest_of(data), size=len(data)), manifest, self.config
        )

    def add_layer(self, layer: Descriptor) -> None:
        """One that was built here: its digest is that of its uncompressed content."""
        self.layers.append(layer)
        self.config.rootfs.diff_ids = [*self.config.rootfs.diff_ids, layer.digest]

    def add_history(self, created: str, created_by: str, *, empty_layer: bool) -> None:
        self.config.created = created
        entry = History(created=created, created_by=created_by, empty_layer=empty_layer)
        self.config.history = [*self.config.history, msgspec.structs.replace(entry)]
