"""The security context of a container: what its process may do, and which fields this node cannot honour. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from trainwright.cluster.linux.privileges import ADDABLE_CAPABILITIES, CAPABILITIES, CONTAINER_CAPABILITIES
from trainwright.cluster.linux.security_json import SecurityJson
from trainwright.cluster.node.pods.config.container_image import ContainerImage, identity_of
from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.cluster.node.supervisor.sandbox.sandbox import OVERLAY
from trainwright.objects import Object

_HARMLESS = {
    "fsGroupChangePolicy": {"Always", "OnRootMismatch"},
    "supplementalGroupsPolicy": {"Merge"},
    "procMount": {"Default"},
}
_HONOURED = frozenset(
    {
        "runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "supplementalGroups", "privileged", "capabilities",
        "allowPrivilegeEscalation", "readOnlyRootFilesystem", "seccompProfile", "appArmorProfile",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUser:
    """The user of the node's processes, and what the sandbox lets them do."""

    level: str
    user: int
    user_namespace: bool
    has_many_users: bool = False
    """True if the user namespace of images has more users than root."""

    @property
    def may_change_user(self) -> bool:
        return self.user == 0 and not self.user_namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSecurity:
    config: SecurityJson
    not_honoured: tuple[str, ...] = field(default=())
    """Paths of fields, each with the reason in brackets."""
    home: str | None = None
    """The home of the user in the image; None on the files of this machine."""


def container_security(pod: Object, container: Object, path: str, node: NodeUser) -> ContainerSecurity:
    """`path` is that of the container; raises PodConfigError if it must not run as root, or with its capabilities."""
    of_pod: Object = pod["spec"].get("securityContext") or {}
    own: Object = container.get("securityContext") or {}
    merged = {**{name: of_pod.get(name) for name in ("runAsUser", "runAsGroup", "runAsNonRoot")}, **_set_fields(own)}
    _check_non_root(pod, container, merged, node)
    privileged = bool(own.get("privileged"))
    config: SecurityJson = {"privileged": privileged and node.may_change_user}
    config["filtered"] = node.level == OVERLAY and not config["privileged"]
    if node.may_change_user:
        config |= _ids(of_pod, merged)
        if not privileged and (capabilities := _capabilities(own.get("capabilities") or {}, node)) is not None:
            config["capabilities"] = capabilities
    elif node.level == OVERLAY:
        config["capabilities"] = []  # in its own user namespace root would have all of them
    escalation = own.get("allowPrivilegeEscalation")
    config["noNewPrivileges"] = escalation is False or (node.level == OVERLAY and escalation is None and not privileged)
    config["readOnlyRoot"] = bool(own.get("readOnlyRootFilesystem")) and node.level == OVERLAY
    return ContainerSecurity(config=config, not_honoured=tuple(_not_honoured(own, f"{path}.securityContext", node)))


def pod_fields_not_honoured(pod: Object, node: NodeUser) -> tuple[str, ...]:
    """Those of the pod's own security context."""
    return tuple(_not_honoured(pod["spec"].get("securityContext") or {}, "spec.securityContext", node))


def file_owner(pod: Object, node: NodeUser) -> tuple[int | None, int | None]:
    """The user that owns the tokens of the pod, and the group that owns its volumes: runAsUser if all containers have
    the same, and fsGroup."""
    if not node.may_change_user:
        return None, None
    of_pod: Object = pod["spec"].get("securityContext") or {}
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    contexts = [container.get("securityContext") or {} for container in containers]
    users = {context.get("runAsUser", of_pod.get("runAsUser")) for context in contexts}
    return (users.pop() if len(users) == 1 else None), of_pod.get("fsGroup")


def _check_non_root(pod: Object, container: Object, merged: Object, node: NodeUser) -> None:
    """In the kubelet's words."""
    if not merged.get("runAsNonRoot"):
        return
    where = _where(pod, container)
    user = merged.get("runAsUser")
    if user == 0:
        raise PodConfigError(f"container's runAsUser breaks non-root policy {where}")
    if node.user == 0 and (user is None or not node.may_change_user):
        raise PodConfigError(f"container has runAsNonRoot and image will run as root {where}")


def _where(pod: Object, container: Object) -> str:
    metadata = pod["metadata"]
    return f'(pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: {container["name"]})'


def _ids(of_pod: Object, merged: Object) -> SecurityJson:
    groups = [*(of_pod.get("supplementalGroups") or [])]
    if of_pod.get("fsGroup") is not None:
        groups.append(of_pod["fsGroup"])
    ids: SecurityJson = {}
    if (user := merged.get("runAsUser")) is not None:
        ids["user"] = user
    if (group := merged.get("runAsGroup")) is not None:
        ids["group"] = group
    if groups:
        ids["groups"] = groups
    return ids


def _capabilities(spec: Object, node: NodeUser) -> list[str] | None:
    """Names of the capabilities that the container keeps; None for all that the node has."""
    add = [_capability(name) for name in spec.get("add") or []]
    drop = [_capability(name) for name in spec.get("drop") or []]
    if node.level == OVERLAY and (beyond := sorted(set(add) & {*CAPABILITIES, "ALL"} - ADDABLE_CAPABILITIES)):
        raise PodConfigError(
            f"securityContext.capabilities.add: {', '.join(beyond)}: it would reach this machine beyond the container; "
            f"remove it, or set privileged: true if the container may do everything (as root). "
            f"Possible: {', '.join(sorted(ADDABLE_CAPABILITIES - set(CONTAINER_CAPABILITIES)))}"
        )
    kept = set(CONTAINER_CAPABILITIES if node.level == OVERLAY else CAPABILITIES)
    if "ALL" in add:
        kept = set(CAPABILITIES)
    if "ALL" in drop:
        kept = set()
    kept = (kept | (set(add) & set(CAPABILITIES))) - set(drop)
    return None if kept == set(CAPABILITIES) else [name for name in CAPABILITIES if name in kept]


def _capability(name: object) -> str:
    return str(name).upper().removeprefix("CAP_")


def _not_honoured(context: Object, path: str, node: NodeUser) -> Iterator[str]:
    for name, value in context.items():
        if value in (None, False, {}, []):
            continue
        reason = _reason(name, value, node)
        if reason is not None:
            yield f"{path}.{name}" + (f" ({reason})" if reason else "")


def _reason(name: str, value: Any, node: NodeUser) -> str | None:
    """Why the field has no effect; empty if the node does not know it, None if it has one."""
    if name not in _HONOURED:
        return None if isinstance(value, str) and value in _HARMLESS.get(name, ()) else ""
    if name in {"seccompProfile", "appArmorProfile"}:
        return _unknown_profile(name, str(value.get("type")), node)
    if name == "readOnlyRootFilesystem":
        return None if node.level == OVERLAY else f"sandbox {node.level}"
    if node.may_change_user:
        return _unknown_capabilities(value) if name == "capabilities" else None
    if name == "runAsUser":
        return None if value == node.user else f"pods run as user {node.user}, who started the cluster"
    if name in {"runAsGroup", "fsGroup", "supplementalGroups", "privileged"}:
        return f"pods run as user {node.user}, who started the cluster"
    if name == "capabilities":
        return f"pods run as user {node.user}, without capabilities" if value.get("add") else None
    return None


def _unknown_profile(name: str, kind: str, node: NodeUser) -> str | None:
    """At `overlay` every container has the filter of this node, and no other."""
    if name == "appArmorProfile" or node.level != OVERLAY:
        return None if kind == "Unconfined" else "no such filter on this node"
    if kind == "RuntimeDefault":
        return None
    return "unprivileged containers keep the filter of this node" if kind == "Unconfined" else "no such filter here"


def _unknown_capabilities(spec: Object) -> str | None:
    names = {_capability(name) for name in [*(spec.get("add") or []), *(spec.get("drop") or [])]}
    unknown = sorted(names - set(CAPABILITIES) - {"ALL"})
    return f"unknown: {', '.join(unknown)}" if unknown else None


def _set_fields(fields: Object) -> Object:
    return {name: value for name, value in fields.items() if value is not None}


def image_security(pod: Object, spec: Object, path: str, image: ContainerImage, node: NodeUser) -> ContainerSecurity:
    """An ordinary user is root in the user namespace of the pod. Raises PodConfigError as `container_security`."""
    of_pod: Object = pod["spec"].get("securityContext") or {}
    own: Object = spec.get("securityContext") or {}
    user, group, non_root = (own.get(name, of_pod.get(name)) for name in ("runAsUser", "runAsGroup", "runAsNonRoot"))
    identity = identity_of(image, run_as_user=user, run_as_group=group)
    if non_root and user is None:
        _check_user_of_image(pod, spec, image, identity.uid)
    inside = node
    if node.user_namespace:
        inside = replace(node, user=0, user_namespace=not node.has_many_users)
    # The image has a user of its own, which was checked above.
    checked_pod = pod if user == 0 else {**pod, "spec": _without_non_root(pod["spec"])}
    checked = spec if user is not None else _without_non_root(spec)
    found = container_security(checked_pod, checked, path, inside)
    config, not_honoured = found.config.copy(), list(found.not_honoured)
    if node.user_namespace:
        config |= {"privileged": False, "filtered": True}
        if own.get("privileged"):
            not_honoured.append(f"{path}.securityContext.privileged (pods run as user {node.user})")
        config.setdefault("capabilities", list(CONTAINER_CAPABILITIES))
        config["capabilities"] = config["capabilities"] or list(CONTAINER_CAPABILITIES)
    if inside.may_change_user:
        groups = [*identity.groups, *(config.get("groups") or ())]
        config |= {"user": identity.uid, "group": identity.gid, "groups": list(dict.fromkeys(groups))}
        config["identified"] = True
    else:
        config.pop("user", None)
        config.pop("group", None)
        config.pop("groups", None)
        if identity.uid != 0 and user is None:
            not_honoured.append(
                f"USER {image.user} of image {spec['image']} (this machine has no ids for it in /etc/subuid, or no "
                "newuidmap: the program runs as root of its container)"
            )
    return replace(found, config=config, not_honoured=tuple(not_honoured), home=identity.home)


def _check_user_of_image(pod: Object, spec: Object, image: ContainerImage, uid: int) -> None:
    """In the kubelet's words."""
    where = _where(pod, spec)
    name = image.user.partition(":")[0]
    if name and not name.isdecimal():
        raise PodConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({name}), "
            f"cannot verify user is non-root {where}"
        )
    if uid == 0:
        raise PodConfigError(f"container has runAsNonRoot and image will run as root {where}")


def _without_non_root(spec: Object) -> Object:
    """The spec of a pod or container without this field of its security context."""
    return {**spec, "securityContext": {**(spec.get("securityContext") or {}), "runAsNonRoot": None}}
