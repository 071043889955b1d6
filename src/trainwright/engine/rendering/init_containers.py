"""The init container in which a pod waits, for a limited time, until the name of a peer resolves or its port is open.

Its script runs in any image with a shell, such as busybox, Alpine or Debian. It checks the output of nslookup, because
busybox's exits with an error if one of several search domains does not have the name.
"""

from collections.abc import Iterable
from itertools import count

from trainwright.engine.children.ranks import Rank
from trainwright.engine.derived_facts import Facts
from trainwright.engine.settings import InitContainer
from trainwright.objects import Object

_NOBODY = 65534
"""A user for any image: the script needs no privileges and no entry in /etc/passwd."""

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
  found >/dev/null && exit 0
  [ $((tries % {every})) -ne 0 ] || echo "waiting for {peer}"
  sleep {pause:g}
  tries=$((tries + 1))
done
exit 1
"""


def init_containers(facts: Facts, rank: Rank) -> list[Object]:
    """Empty if the pod has no peer to wait for, or if waiting is switched off."""
    settings = facts.settings.init_container
    peer = facts.framework.waits_for(facts.job, rank)
    if settings is None or peer is None:
        return []
    if settings.template is None:
        return [_container(facts, rank, peer, settings)]
    host = facts.addresses.host(peer)
    return settings.template.render(master=host, image=settings.image, max_tries=settings.max_tries)


def _container(facts: Facts, rank: Rank, peer: Rank, settings: InitContainer) -> Object:
    container: Object = {
        "name": f"init-{facts.job.kind.framework}",
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _script(facts, peer, settings)],
    }
    if settings.limited:
        container["resources"] = {
            "requests": {"cpu": "50m", "memory": "10Mi"},
            "limits": {"cpu": "100m", "memory": "20Mi"},
        }
        if context := _security_context(facts, rank):
            container["securityContext"] = context
    return container


def _script(facts: Facts, peer: Rank, settings: InitContainer) -> str:
    host = facts.addresses.host(peer)
    if settings.wait_for_port and facts.job.replicas[peer.role].role.has_port:
        find = _FIND_PORT.format(host=host, port=facts.addresses.port(peer))
    else:
        find = _FIND_NAME.format(host=host)
    pause = settings.pause_seconds
    # Upstream's container says it every two seconds.
    every = max(1, round(2 / pause)) if pause else 1
    return find + _TRY.format(peer=peer.role.lower(), tries=settings.max_tries, pause=pause, every=every)


def _security_context(facts: Facts, rank: Rank) -> Object:
    """The fields of the main container's security context that fit this container.

    The restricted Pod Security Standard applies to all containers of a pod. Without a security context the container is
    the same as upstream's, so that images that need root work.
    """
    replica = facts.job.replicas[rank.role]
    pod = replica.template["spec"].get("securityContext") or {}
    main = replica.main_container.get("securityContext") or {}
    context: Object = {field: main[field] for field in _COPIED if main.get(field)}
    if main.get("allowPrivilegeEscalation") is False:
        context["allowPrivilegeEscalation"] = False
    if "ALL" in ((main.get("capabilities") or {}).get("drop") or []):
        context["capabilities"] = {"drop": ["ALL"]}
    if (context.get("runAsNonRoot") or pod.get("runAsNonRoot")) and not pod.get("runAsUser"):
        context["runAsUser"] = main.get("runAsUser") or _NOBODY
    return context


def with_free_names(containers: Iterable[Object], spec: Object) -> list[Object]:
    """The containers, with `-2` and so on appended to names that the pod has already."""
    taken = {container["name"] for key in ("containers", "initContainers") for container in spec.get(key) or []}
    named = []
    for container in containers:
        wanted = container["name"]
        candidates = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
        name = next(candidate for candidate in candidates if candidate not in taken)
        taken.add(name)
        named.append({**container, "name": name})
    return named
