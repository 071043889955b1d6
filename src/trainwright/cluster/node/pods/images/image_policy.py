"""Which image a container gets, and what the status says while it has none. Pure, in the kubelet's words."""

from typing import Literal

from trainwright.cluster.node.pods.config.runtime_config import WaitingReason

ERR_IMAGE_PULL = "ErrImagePull"
IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"
INVALID_IMAGE_NAME = "InvalidImageName"

_FIRST_BACK_OFF = 10.0
_LONGEST_BACK_OFF = 300.0

Action = Literal["use", "pull", "host", "never", "refuse"]


def decide(policy: str, *, found: bool, may_pull: bool, unknown: str) -> Action:
    """`use` the stored image, `pull` it, run on the `host`'s files, or refuse it: `never` because of its policy."""
    if policy == "Always" and may_pull:
        return "pull"
    if found:
        return "use"
    if policy == "Never":
        return "host" if unknown == "host" else "never"
    if may_pull:
        return "pull"
    return "host" if unknown == "host" else "refuse"


def back_off(failures: int) -> float:
    """Seconds until the next attempt."""
    return min(_FIRST_BACK_OFF * 2.0 ** (failures - 1), _LONGEST_BACK_OFF)


def never_pull(image: str, container: str) -> WaitingReason:
    message = f'Container image "{image}" is not present with pull policy of Never'
    return WaitingReason(reason=ERR_IMAGE_NEVER_PULL, message=message, container=container)


def invalid_name(image: str, container: str, cause: str) -> WaitingReason:
    message = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {cause}'
    return WaitingReason(reason=INVALID_IMAGE_NAME, message=message, container=container)


def pull_failed(container: str, cause: str) -> WaitingReason:
    return WaitingReason(reason=ERR_IMAGE_PULL, message=cause, container=container)


def backing_off(image: str, container: str, cause: str) -> WaitingReason:
    message = f'Back-off pulling image "{image}": {ERR_IMAGE_PULL}: {cause}'
    return WaitingReason(reason=IMAGE_PULL_BACK_OFF, message=message, container=container)


def refused(image: str, container: str) -> WaitingReason:
    cause = (
        f"image {image} is not on this machine, and the cluster was started with --unknown-images=refuse: build, pull "
        "or load it with `trainwright image`"
    )
    return pull_failed(container, cause)


def pulled_message(image: str, seconds: float, size: int) -> str:
    duration = f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    return (
        f'Successfully pulled image "{image}" in {duration} ({duration} including waiting). Image size: {size} bytes.'
    )
