"""How many pods a rolling update may add, and how many may be unavailable."""

from trainwright.objects import Object


def replicas_of(obj: Object) -> int:
    return int(obj["spec"].get("replicas", 1))


def max_surge(deployment: Object) -> int:
    return _limits(deployment)[0]


def max_unavailable(deployment: Object) -> int:
    return min(_limits(deployment)[1], replicas_of(deployment))


def new_set_size(deployment: Object, *, total: int, present: int) -> int:
    """The size of the new ReplicaSet, of which `present` pods are among the `total` ones."""
    size = replicas_of(deployment)
    if not _is_rolling(deployment):
        return size
    room = size + scaled(_rolling(deployment, "maxSurge"), size, round_up=True) - total
    return present + max(min(room, size - present), 0)


def _limits(deployment: Object) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods; percentages that both come to zero let one pod be unavailable."""
    if not _is_rolling(deployment):
        return 0, 0
    size = replicas_of(deployment)
    surge = scaled(_rolling(deployment, "maxSurge"), size, round_up=True)
    unavailable = scaled(_rolling(deployment, "maxUnavailable"), size, round_up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _is_rolling(deployment: Object) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def _rolling(deployment: Object, name: str) -> int | str:
    value: int | str = (deployment["spec"]["strategy"].get("rollingUpdate") or {}).get(name, 0)
    return value


def scaled(value: int | str, total: int, *, round_up: bool) -> int:
    if isinstance(value, int):
        return value
    product = int(value.removesuffix("%")) * total
    return -(-product // 100) if round_up else product // 100
