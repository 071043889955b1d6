"""What the owner of the machine chooses for the node: one value from the flags of `up` to the pods, and in
`cluster.json`. What the running node finds out by itself is in `node/pods/node_config.py`."""

import sys

import msgspec

UNKNOWN_IMAGES = ("host", "pull", "refuse")
"""What happens to a pod whose image this machine does not have; the first is the default."""


class NodeSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    sandbox: str = ""
    """The level of all pods; empty for the strongest that works."""
    python: str = sys.executable
    """The Python of pods whose job names none."""
    python_origin: str = ""
    """Why this is the Python of pods, for users."""
    nfs_mappings: dict[str, str] = {}
    """Directories in place of NFS exports (`SERVER:/PATH`); empty for those of the last start."""
    unknown_images: str = UNKNOWN_IMAGES[0]
    """One of UNKNOWN_IMAGES."""
    registries: tuple[str, ...] = ()
    """Registries from which images are pulled without a login."""
