"""The init container in which a pod waits, bounded, until the name of the peer that it needs can be resolved."""

from trainwright.engine.draft import Draft
from trainwright.engine.ranks import Rank
from trainwright.objects import Object


def init_container(draft: Draft, rank: Rank) -> Object | None:
    """None where nobody waits: no peer, or switched off."""
    settings = draft.settings.init_container
    peer = draft.framework.waits_for(draft.job, rank)
    if settings is None or peer is None:
        return None
    host = draft.addresses.host(peer)
    container: Object = {
        "name": _free_name(draft, rank),
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _script(host, settings.max_tries, settings.pause_seconds)],
    }
    if settings.limited:
        container["resources"] = {
            "requests": {"cpu": "50m", "memory": "10Mi"},
            "limits": {"cpu": "100m", "memory": "20Mi"},
        }
    return container


def _script(host: str, tries: int, pause: float) -> str:
    """For busybox, which may lack getent, and for a bare Debian, which lacks nslookup."""
    return (
        f"tries=0; while [ $tries -lt {tries} ]; do "
        f"if command -v getent >/dev/null 2>&1; then getent hosts {host}; else nslookup {host}; fi && exit 0; "
        f'echo "waiting for master"; sleep {pause:g}; tries=$((tries + 1)); done; exit 1'
    )


def _free_name(draft: Draft, rank: Rank) -> str:
    """`init-pytorch`, unless the template has a container of that name."""
    spec = draft.replicas[rank.role].template["spec"]
    taken = {container["name"] for key in ("containers", "initContainers") for container in spec.get(key) or []}
    name = f"init-{draft.job.kind.framework}"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(candidate for candidate in (name, *numbered) if candidate not in taken)
