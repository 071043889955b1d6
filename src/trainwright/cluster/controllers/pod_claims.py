"""Which claims a pod uses: the view of its volumes that the scheduler and the volume controller share."""

from collections.abc import Iterable
from typing import Any

from trainwright.objects.metadata import View


class ClaimSource(View, frozen=True):
    claim_name: str = ""


class PodVolume(View, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None


def claim_names(pod_name: str, volumes: Iterable[PodVolume]) -> list[str]:
    """In the order of the volumes; a volume that brings its own claim names it after the pod and itself."""
    names = []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod_name}-{volume.name}")
    return [name for name in names if name]
