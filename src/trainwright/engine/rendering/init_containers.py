"""The init container in which a pod waits, bounded, until it can find the peer that it needs: by name, or at its port.

Its script runs wherever there is a shell: in busybox, in Alpine, in a bare Debian. It judges nslookup by what it
prints, because that of busybox fails whenever one of several search domains does not know the name.
"""

from itertools import count

from trainwright.api.defaults import default_container
from trainwright.engine.draft import Draft
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.addressing import declared_port
from trainwright.engine.settings import InitContainer
from trainwright.objects import Object

_NOBODY = 65534
"""A user that every image may run as: the script needs no rights, and no entry in /etc/passwd."""

_COPIED = ("runAsNonRoot", "runAsGroup", "seccompProfile", "readOnlyRootFilesystem")

_FIND_NAME = """\
if command -v getent >/dev/null 2>&1; then found() {{ getent hosts {host}; }}
elif command -v nslookup >/dev/null 2>&1; then
  found() {{ answer=$(nslookup {host} 2>&1); case "$answer" in *Name:*) echo "$answer" ;; *) return 1 ;; esac; }}
elif command -v python3 >/dev/null 2>&1; then
  found() {{ python3 -c 'import socket; socket.getaddrinfo("{host}", None)' 2>/dev/null; }}
else echo "this image has neither getent nor nslookup nor python3: choose another one for init containers"; exit 1; fi
"""

_FIND_PORT = """\
if command -v bash >/dev/null 2>&1 && command -v timeout >/dev/null 2>&1; then
  found() {{ timeout 2 bash -c ': </dev/tcp/{host}/{port}' 2>/dev/null; }}
elif command -v nc >/dev/null 2>&1; then
  case "$(nc -h 2>&1)" in
    *-z*) found() {{ nc -z -w 2 {host} {port} >/dev/null 2>&1; }} ;;
    *) found() {{ nc -w 2 {host} {port} -e true >/dev/null 2>&1; }} ;;
  esac
elif command -v python3 >/dev/null 2>&1; then
  found() {{ python3 -c 'import socket; socket.create_connection(("{host}", {port}), 2)' 2>/dev/null; }}
else echo "this image has neither bash nor nc nor python3: choose another one for init containers"; exit 1; fi
"""

_TRY = """\
tries=0
while [ $tries -lt {tries} ]; do
  found && exit 0
  echo "waiting for master"
  sleep {pause:g}
  tries=$((tries + 1))
done
exit 1
"""


def init_containers(draft: Draft, rank: Rank) -> list[Object]:
    """None where nobody waits: no peer, or switched off."""
    settings = draft.settings.init_container
    peer = draft.framework.waits_for(draft.job, rank)
    if settings is None or peer is None:
        return []
    if settings.template is None:
        containers = [_container(draft, rank, peer, settings)]
    else:
        host = draft.addresses.host(peer)
        containers = settings.template.render(master=host, image=settings.image, max_tries=settings.max_tries)
    return _with_free_names(draft, rank, containers)


def _container(draft: Draft, rank: Rank, peer: Rank, settings: InitContainer) -> Object:
    container: Object = {
        "name": f"init-{draft.job.kind.framework}",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _script(draft, peer, settings)],
    }
    if settings.limited:
        container["resources"] = {
            "requests": {"cpu": "50m", "memory": "10Mi"},
            "limits": {"cpu": "100m", "memory": "20Mi"},
        }
        if context := _security_context(draft, rank):
            container["securityContext"] = context
    return container


def _script(draft: Draft, peer: Rank, settings: InitContainer) -> str:
    host = draft.addresses.host(peer)
    if settings.wait_for_port:
        port = draft.addresses.port(peer.role, declared_port(draft.job, peer.role))
        look = _FIND_PORT.format(host=host, port=port)
    else:
        look = _FIND_NAME.format(host=host)
    return look + _TRY.format(tries=settings.max_tries, pause=settings.pause_seconds)


def _security_context(draft: Draft, rank: Rank) -> Object:
    """What the training container promises about itself, where it is a promise that ours can make as well.

    A namespace that enforces restricted pods demands the same of all containers. A pod that says nothing runs as it
    does under Kubeflow's operator, images that need root included.
    """
    spec = draft.replicas[rank.role].template["spec"]
    pod = spec.get("securityContext") or {}
    trains = default_container(spec["containers"], draft.job.kind).get("securityContext") or {}
    context: Object = {field: trains[field] for field in _COPIED if trains.get(field)}
    if trains.get("allowPrivilegeEscalation") is False:
        context["allowPrivilegeEscalation"] = False
    if "ALL" in ((trains.get("capabilities") or {}).get("drop") or []):
        context["capabilities"] = {"drop": ["ALL"]}
    if (context.get("runAsNonRoot") or pod.get("runAsNonRoot")) and not pod.get("runAsUser"):
        context["runAsUser"] = trains.get("runAsUser") or _NOBODY
    return context


def _with_free_names(draft: Draft, rank: Rank, containers: list[Object]) -> list[Object]:
    """`init-pytorch`, or what the template says, unless the pod has a container of that name: then `init-pytorch-2`."""
    spec = draft.replicas[rank.role].template["spec"]
    taken = {container["name"] for key in ("containers", "initContainers") for container in spec.get(key) or []}
    named = []
    for container in containers:
        wanted = container["name"]
        candidates = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        name = next(candidate for candidate in candidates if candidate not in taken)
        taken.add(name)
        named.append({**container, "name": name})
    return named
