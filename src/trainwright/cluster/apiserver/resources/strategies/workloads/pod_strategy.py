"""The strategy of pods: defaults, the checks that users meet, which fields may change."""

from collections.abc import Iterator
from typing import Any

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.objects import Object
from trainwright.objects.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from trainwright.objects.kinds.pods import is_sidecar
from trainwright.objects.names import dns_label_problem, dns_subdomain_problem
from trainwright.objects.quantities import parse_quantity

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROC_MOUNTS = ("Default", "Unmasked")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_HOST_PATH_TYPES = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
_MODES = {"configMap": "defaultMode", "secret": "defaultMode", "downwardAPI": "defaultMode", "projected": "defaultMode"}
_ENV_NAME_PROBLEM = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_MUTABLE_ONLY = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS = 300


def _set_defaults(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for _, container in _containers(spec):
        resources = container["resources"]
        if limits := resources.get("limits"):
            resources["requests"] = limits | (resources.get("requests") or {})
        for port in container.get("ports") or () if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port.get("containerPort"))


def default_pod_spec(spec: Object) -> None:
    """The defaults that pods and pod templates have in common."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    if isinstance(grace := spec["terminationGracePeriodSeconds"], int) and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    spec.setdefault("securityContext", {})
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for _, container in _containers(spec):
        _default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: Object) -> None:
    container.setdefault("imagePullPolicy", _pull_policy(str(container.get("image", ""))))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        _default_field_ref(variable.get("valueFrom") or {})
    set_probe_defaults(container)


def _default_volume(volume: Object) -> None:
    for source, field in _MODES.items():
        if settings := volume.get(source):
            settings.setdefault(field, 0o644)
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_ref(item)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}


def _default_field_ref(holder: Object) -> None:
    if reference := holder.get("fieldRef"):
        reference.setdefault("apiVersion", "v1")


def _pull_policy(image: str) -> str:
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    return "Always" if tag in {"", "latest"} and "@" not in image else "IfNotPresent"


def _prepare_for_create(pod: Object) -> None:
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    _copy_app_armor_annotations(pod)


def _copy_app_armor_annotations(pod: Object) -> None:
    """The profile of a container that an annotation names, as clients before 1.30 do, becomes a field."""
    annotations, spec = pod["metadata"].get("annotations") or {}, pod["spec"]
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for _, container in _containers(spec):
        profile = _app_armor_profile(annotations.get(_APP_ARMOR_ANNOTATION + str(container.get("name"))) or "")
        context = container.get("securityContext") or {}
        if profile and "appArmorProfile" not in context and profile != spec["securityContext"].get("appArmorProfile"):
            container["securityContext"] = context | {"appArmorProfile": profile}


def _app_armor_profile(annotation: str) -> Object | None:
    """The field for the value of an annotation; None if there is none."""
    if annotation.startswith("localhost/") and (name := annotation.removeprefix("localhost/")):
        return {"type": "Localhost", "localhostProfile": name}
    profile = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}.get(annotation)
    return {"type": profile} if profile else None


def _prepare_for_update(new: Object, old: Object) -> None:
    """Keeps what admission has set if the client does not send it."""
    if any(toleration.get("key") in _DEFAULT_TOLERATIONS for toleration in old["spec"].get("tolerations") or ()):
        set_default_tolerations(new["spec"])
    for field in ("priority", "preemptionPolicy"):
        if field in old["spec"]:
            new["spec"].setdefault(field, old["spec"][field])


def set_default_tolerations(spec: Object) -> None:
    """A pod stays for five minutes on a node that fails, unless its tolerations say otherwise.

    On the real server that is the plugin DefaultTolerationSeconds, which also completes updates.
    """
    tolerations = spec.get("tolerations") or []
    keys = {
        toleration.get("key") or "" for toleration in tolerations if toleration.get("effect", "") in {"", "NoExecute"}
    }
    missing = [key for key in _DEFAULT_TOLERATIONS if not keys & {key, ""}]
    if missing:
        spec["tolerations"] = [
            *tolerations,
            *(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
                for key in missing
            ),
        ]


def _prepare_for_status_update(new: Object, old: Object) -> None:
    """Keeps the QoS class if the kubelet's status does not have it."""
    qos_class = (old.get("status") or {}).get("qosClass")
    if qos_class:
        new["status"] = {"qosClass": qos_class} | (new.get("status") or {})


def qos_class(spec: Object) -> str:
    wanted = [container.get("resources") or {} for _, container in _containers(spec)]
    if not any(resources.get("requests") or resources.get("limits") for resources in wanted):
        return "BestEffort"
    for resources in wanted:
        limits = resources.get("limits") or {}
        if not {"cpu", "memory"} <= limits.keys() or any(
            (resources.get("requests") or {}).get(k) != limits[k] for k in ("cpu", "memory")
        ):
            return "Burstable"
    return "Guaranteed"


def _validate(pod: Object) -> list[FieldError]:
    return pod_spec_errors(pod["spec"])


def pod_spec_errors(spec: Object) -> list[FieldError]:
    """The errors of a spec with its defaults; their paths begin with `spec`."""
    found = list(_volume_errors(spec))
    if not spec.get("containers"):
        found.append(required("spec.containers"))
    names: set[str] = set()
    for path, container in _containers(spec):
        found += _container_errors(container, path, names)
        found += _proc_mount_errors(spec, container, path)
        one_time = path.startswith("spec.initContainers") and not is_sidecar(container)
        grace = spec.get("terminationGracePeriodSeconds")
        found += probe_errors(container, path, one_time=one_time, grace=grace)
        found += _mount_errors(container, path, {volume.get("name") for volume in spec.get("volumes") or ()})
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        found.append(not_supported("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES))
    for field in ("hostname", "subdomain"):
        if (name := spec.get(field)) and (problem := dns_label_problem(name)):
            found.append(invalid(f"spec.{field}", name, problem))
    if (name := spec.get("nodeName")) and (problem := dns_subdomain_problem(name)):
        found.append(invalid("spec.nodeName", name, problem))
    if isinstance(deadline := spec.get("activeDeadlineSeconds"), int) and deadline < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        found.append(invalid("spec.activeDeadlineSeconds", deadline, detail))
    return found


def _container_errors(container: Object, path: str, names: set[str]) -> Iterator[FieldError]:
    yield from _name_errors(container, path, names)
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    if (policy := container["imagePullPolicy"]) not in _PULL_POLICIES:
        yield not_supported(f"{path}.imagePullPolicy", policy, sorted(_PULL_POLICIES))
    yield from _resource_errors(container["resources"], f"{path}.resources")
    for index, port in enumerate(container.get("ports") or ()):
        yield from _port_errors(port, f"{path}.ports[{index}]")
    for index, variable in enumerate(container.get("env") or ()):
        yield from _env_errors(variable, f"{path}.env[{index}]")


def _proc_mount_errors(spec: Object, container: Object, path: str) -> Iterator[FieldError]:
    mount, field = (container.get("securityContext") or {}).get("procMount"), f"{path}.securityContext.procMount"
    if mount is not None and mount not in _PROC_MOUNTS:
        yield not_supported(field, mount, _PROC_MOUNTS)
    if mount == "Unmasked" and spec.get("hostUsers") is not False:
        yield invalid(field, mount, "`hostUsers` must be false to use `Unmasked`")


def _name_errors(named: Object, path: str, names: set[str]) -> Iterator[FieldError]:
    """`names` are those of the preceding siblings."""
    name = named.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif problem := dns_label_problem(name):
        yield invalid(f"{path}.name", name, problem)
    elif name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)


def _resource_errors(resources: Object, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    for kind in ("limits", "requests"):
        for name, amount in (resources.get(kind) or {}).items():
            if parse_quantity(amount) < 0:
                yield invalid(f"{path}.{kind}[{name}]", amount, "must be greater than or equal to 0")
    for name, wanted in (resources.get("requests") or {}).items():
        if name in limits and parse_quantity(wanted) > parse_quantity(limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield invalid(f"{path}.requests", wanted, detail)


def _port_errors(port: Object, path: str) -> Iterator[FieldError]:
    number = port.get("containerPort")
    if number is None or number == 0:
        yield required(f"{path}.containerPort")
    elif not 1 <= number <= 65535:
        yield invalid(f"{path}.containerPort", number, "must be between 1 and 65535, inclusive")
    if port["protocol"] not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", port["protocol"], _PROTOCOLS)


def _env_errors(variable: Object, path: str) -> Iterator[FieldError]:
    name = variable.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif "=" in name or not name.isprintable() or not name.isascii():
        yield invalid(f"{path}.name", name, _ENV_NAME_PROBLEM)
    source = variable.get("valueFrom")
    if source and variable.get("value"):
        yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    if source is not None and not source:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        )
        yield invalid(f"{path}.valueFrom", "", detail)


def _mount_errors(container: Object, path: str, volumes: set[Any]) -> Iterator[FieldError]:
    paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        mount_path = f"{path}.volumeMounts[{index}]"
        name = mount.get("name", "")
        if not name:
            yield required(f"{mount_path}.name")
        elif name not in volumes:
            yield not_found(f"{mount_path}.name", name)
        target = mount.get("mountPath", "")
        if not target:
            yield required(f"{mount_path}.mountPath")
        elif target in paths:
            yield invalid(f"{mount_path}.mountPath", target, "must be unique")
        paths.add(target)
        for field in ("subPath", "subPathExpr"):
            # Upstream leaves out the index of the mount here, and here alone.
            yield from _path_errors(mount.get(field) or "", f"{path}.volumeMounts.{field}")
        if mount.get("subPath") and (expression := mount.get("subPathExpr")):
            detail = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{mount_path}.subPathExpr", expression, detail)


def _path_errors(path: str, field: str) -> Iterator[FieldError]:
    """A path within a volume must not lead out of it."""
    if path.startswith("/"):
        yield invalid(field, path, "must be a relative path")
    yield from _backstep_errors(path, field)


def _backstep_errors(path: str, field: str) -> Iterator[FieldError]:
    if ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def _volume_errors(spec: Object) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        path = f"spec.volumes[{index}]"
        yield from _name_errors(volume, path, names)
        sources = sorted(volume.keys() - {"name"})
        for extra in sources[1:]:
            yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
        if "hostPath" in volume:
            yield from _host_path_errors(volume["hostPath"], f"{path}.hostPath")
        for source in ("configMap", "secret"):
            for number, item in enumerate((volume.get(source) or {}).get("items") or ()):
                yield from _item_errors(item, f"{path}.{source}.items[{number}]")
        if "persistentVolumeClaim" in volume and not volume["persistentVolumeClaim"].get("claimName"):
            yield required(f"{path}.persistentVolumeClaim.claimName")


def _host_path_errors(source: Object, path: str) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{path}.path")
        return
    yield from _backstep_errors(source["path"], f"{path}.path")
    if (kind := source.get("type") or "") not in _HOST_PATH_TYPES:
        yield not_supported(f"{path}.type", kind, _HOST_PATH_TYPES)


def _item_errors(item: Object, path: str) -> Iterator[FieldError]:
    if not item.get("key"):
        yield required(f"{path}.key")
    target = item.get("path") or ""
    if not target:
        yield required(f"{path}.path")
    yield from _path_errors(target, f"{path}.path")
    if target.startswith("..") and ".." not in target.split("/"):
        yield invalid(f"{path}.path", target, "must not start with '..'")


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    before, after = _comparable(old["spec"]), _comparable(new["spec"])
    found = []
    changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    kept = old["spec"].get("tolerations") or []
    removed_toleration = any(toleration not in (new["spec"].get("tolerations") or []) for toleration in kept)
    if changed or removed_toleration:
        names = ", ".join([*changed, *(["tolerations"] if removed_toleration else [])])
        found.append(forbidden("spec", f"{_MUTABLE_ONLY}\nchanged: {names}"))
    return found


def _comparable(spec: Object) -> Object:
    """The spec without its mutable fields."""
    fixed = {key: value for key, value in spec.items() if key not in {"activeDeadlineSeconds", "tolerations"}}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{k: v for k, v in container.items() if k != "image"} for container in fixed[group] or ()]
    return fixed


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            yield f"spec.{group}[{index}]", container


POD_STRATEGY = Strategy(
    set_defaults=_set_defaults,
    prepare_for_create=_prepare_for_create,
    prepare_for_update=_prepare_for_update,
    prepare_for_status_update=_prepare_for_status_update,
    validate=_validate,
    validate_update=_validate_update,
)


PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_WITHOUT_RESTARTS = "may not be set for init containers without restartPolicy=Always"


def set_probe_defaults(container: Object) -> None:
    for name in PROBES:
        if probe := container.get(name):
            for field, value in _DEFAULTS.items():
                probe[field] = probe.get(field) or value
            _default_handler(probe)
    for name in _HOOKS:
        if handler := (container.get("lifecycle") or {}).get(name):
            _default_handler(handler)


def _default_handler(handler: Object) -> None:
    if (action := handler.get("httpGet")) is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")
    if (action := handler.get("grpc")) is not None:
        action.setdefault("service", "")


def probe_errors(container: Object, path: str, *, one_time: bool, grace: int | None) -> Iterator[FieldError]:
    """`one_time`: an init container that is no sidecar; `grace` is terminationGracePeriodSeconds."""
    if one_time:
        for name in ("lifecycle", *PROBES):
            if container.get(name) is not None:
                yield forbidden(f"{path}.{name}", _WITHOUT_RESTARTS)
        return
    for name in _HOOKS:
        if (handler := (container.get("lifecycle") or {}).get(name)) is not None:
            yield from _handler_errors(handler, f"{path}.lifecycle.{name}", grace)
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            yield from _probe_errors(probe, name, f"{path}.{name}", grace)


def _probe_errors(probe: Object, name: str, path: str, grace: int | None) -> Iterator[FieldError]:
    yield from _handler_errors(probe, path, grace)
    for field in _NUMBERS:
        if (value := probe.get(field) or 0) < 0:
            yield invalid(f"{path}.{field}", value, "must be greater than or equal to 0")
    own_grace = probe.get("terminationGracePeriodSeconds")
    if own_grace is not None and own_grace <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", own_grace, "must be greater than 0")
    if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    if name == "readinessProbe" and own_grace is not None:
        yield invalid(f"{path}.terminationGracePeriodSeconds", own_grace, "must not be set for readinessProbes")


def _handler_errors(handler: Object, path: str, grace: int | None) -> Iterator[FieldError]:
    found = [name for name in _HANDLERS if handler.get(name) is not None]
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if not found:
        yield required(path, "must specify a handler type")
        return
    name, action = found[0], handler[found[0]]
    if name == "exec" and not action.get("command"):
        yield required(f"{path}.exec.command")
    if name == "sleep" and grace is not None and not 0 <= (seconds := action.get("seconds") or 0) <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(f"{path}.sleep", seconds, detail)
    if name == "httpGet" and not action.get("path"):
        yield required(f"{path}.httpGet.path")
    if name in {"httpGet", "tcpSocket", "grpc"}:
        port = action.get("port", 0)
        if isinstance(port, int) and not 1 <= port <= 65535:
            yield invalid(f"{path}.{name}.port", port, "must be between 1 and 65535, inclusive")
    if name == "httpGet" and action["scheme"] not in _SCHEMES:
        yield not_supported(f"{path}.httpGet.scheme", action["scheme"], _SCHEMES)
