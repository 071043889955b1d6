"""What the process of a container with an image's files may do: USER and its groups, and the security context. Pure."""

from dataclasses import replace

from trainwright.cluster.linux.privileges import CONTAINER_CAPABILITIES
from trainwright.cluster.node.pods.config.container_image import ContainerImage, identity_of
from trainwright.cluster.node.pods.config.security_context import ContainerSecurity, NodeUser, container_security
from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.objects import Object


def image_security(pod: Object, spec: Object, path: str, image: ContainerImage, node: NodeUser) -> ContainerSecurity:
    """An ordinary user is root in the user namespace of the pod. Raises PodConfigError as `container_security`."""
    of_pod: Object = pod["spec"].get("securityContext") or {}
    own: Object = spec.get("securityContext") or {}
    user, group, non_root = (own.get(name, of_pod.get(name)) for name in ("runAsUser", "runAsGroup", "runAsNonRoot"))
    identity = identity_of(image, run_as_user=user, run_as_group=group)
    if non_root and user is None:
        _check_non_root(pod, spec, image, identity.uid)
    inside = node
    if node.user_namespace:
        inside = replace(node, user=0, user_namespace=not node.has_many_users)
    found = container_security(_without_non_root(pod), _without_non_root_container(spec, user), path, inside)
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


def _check_non_root(pod: Object, spec: Object, image: ContainerImage, uid: int) -> None:
    """In the kubelet's words."""
    metadata = pod["metadata"]
    where = f'(pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: {spec["name"]})'
    name = image.user.partition(":")[0]
    if name and not name.isdecimal():
        raise PodConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({name}), "
            f"cannot verify user is non-root {where}"
        )
    if uid == 0:
        raise PodConfigError(f"container has runAsNonRoot and image will run as root {where}")


def _without_non_root(pod: Object) -> Object:
    """Checked here, because the image has a user of its own."""
    context = pod["spec"].get("securityContext") or {}
    if not context.get("runAsNonRoot"):
        return pod
    return {**pod, "spec": {**pod["spec"], "securityContext": {**context, "runAsNonRoot": None}}}


def _without_non_root_container(spec: Object, user: int | None) -> Object:
    context = spec.get("securityContext") or {}
    if user is not None or not context.get("runAsNonRoot"):
        return spec
    return {**spec, "securityContext": {**context, "runAsNonRoot": None}}
