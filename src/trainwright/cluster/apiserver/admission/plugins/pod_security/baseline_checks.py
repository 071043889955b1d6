"""The checks of the level `baseline`, which `restricted` includes. Texts are those of the real API server."""

from collections.abc import Iterator

from trainwright.cluster.apiserver.admission.plugins.pod_security.check import (
    Check,
    PodCheck,
    Violation,
    bad_containers,
    bad_setters,
    containers,
    contexts,
    has_user_namespace,
    named,
    plural,
    quoted_list,
    security_context,
)
from trainwright.objects import Object
from trainwright.objects.field_errors import quoted

_APP_ARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD_ANNOTATION = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER_ANNOTATION = "container.seccomp.security.alpha.kubernetes.io/"
_SAFE_PROFILE_TYPES = {"RuntimeDefault", "Localhost"}
_DEFAULT_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
_SELINUX_TYPES = {"", "container_t", "container_init_t", "container_kvm_t"}
_SELINUX_TYPES_31 = _SELINUX_TYPES | {"container_engine_t"}
_SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_syncookies",
}
_SYSCTLS_27 = _SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_29 = _SYSCTLS_27 | {
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
}
_SYSCTLS_32 = _SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def _app_armor_profile(metadata: Object, spec: Object) -> Violation | None:
    def is_bad(context: Object) -> bool:
        profile = context.get("appArmorProfile")
        return profile is not None and profile.get("type", "") not in _SAFE_PROFILE_TYPES

    setters = bad_setters(spec, is_bad)
    values = sorted({context["appArmorProfile"].get("type", "") for context in contexts(spec) if is_bad(context)})
    annotations = sorted(
        f"{key}={quoted(value)}"
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(_APP_ARMOR_ANNOTATION)
        and value not in {"", "runtime/default"}
        and not value.startswith("localhost/")
    )
    if annotations:
        setters.append(plural("annotation", "annotations", len(annotations)))
        values += annotations
    if not setters:
        return None
    return Violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", len(values)),
        f"{' and '.join(setters)} must not set AppArmor profile type to {quoted_list(values)}",
    )


def _capabilities(_metadata: Object, spec: Object) -> Violation | None:
    def extra(context: Object) -> set[str]:
        return {*((context.get("capabilities") or {}).get("add") or ())} - _DEFAULT_CAPABILITIES

    names = bad_containers(spec, lambda context: bool(extra(context)))
    if not names:
        return None
    added = quoted_list(sorted(set().union(*map(extra, contexts(spec)))))
    detail = f"{named('container', names)} must not include {added} in securityContext.capabilities.add"
    return Violation("non-default capabilities", detail)


def _host_namespaces(_metadata: Object, spec: Object) -> Violation | None:
    shared = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def _host_path_volumes(_metadata: Object, spec: Object) -> Violation | None:
    names = [volume.get("name", "") for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", named("volume", names)) if names else None


def _host_ports(_metadata: Object, spec: Object) -> Violation | None:
    def host_ports(container: Object) -> set[str]:
        return {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}

    names = [container.get("name", "") for container in containers(spec) if host_ports(container)]
    if not names:
        return None
    ports = sorted(set().union(*map(host_ports, containers(spec))))
    noun = plural("hostPort", "hostPorts", len(ports))
    return Violation(
        "hostPort", f"{named('container', names)} {plural('uses', 'use', len(names))} {noun} {', '.join(ports)}"
    )


def _probe_hosts(_metadata: Object, spec: Object) -> Violation | None:
    found = {(container.get("name", ""), host) for container in containers(spec) for host in _handler_hosts(container)}
    if not found:
        return None
    names, values = sorted({name for name, _ in found}), sorted({host for _, host in found})
    noun = plural("probe or lifecycle host", "probe or lifecycle hosts", len(values))
    detail = f"{named('container', names)} {plural('uses', 'use', len(names))} {noun} {quoted_list(values)}"
    return Violation("probe or lifecycle host", detail)


def _handler_hosts(container: Object) -> Iterator[str]:
    lifecycle = container.get("lifecycle") or {}
    probes = (container.get(field) for field in ("livenessProbe", "readinessProbe", "startupProbe"))
    for handler in (*probes, lifecycle.get("postStart"), lifecycle.get("preStop")):
        for action in ("httpGet", "tcpSocket"):
            if host := ((handler or {}).get(action) or {}).get("host"):
                yield host


def _privileged(_metadata: Object, spec: Object) -> Violation | None:
    names = bad_containers(spec, lambda context: bool(context.get("privileged")))
    if not names:
        return None
    return Violation("privileged", f"{named('container', names)} must not set securityContext.privileged=true")


def proc_mount(_metadata: Object, spec: Object) -> Violation | None:
    def bad_mount(context: Object) -> set[str]:
        mount = context.get("procMount")
        return set() if mount in {None, "Default"} else {mount}

    names = bad_containers(spec, lambda context: bool(bad_mount(context)))
    if not names:
        return None
    found = quoted_list(sorted(set().union(*map(bad_mount, contexts(spec)))))
    return Violation("procMount", f"{named('container', names)} must not set securityContext.procMount to {found}")


def _proc_mount_35(metadata: Object, spec: Object) -> Violation | None:
    return None if has_user_namespace(spec) else proc_mount(metadata, spec)


def has_unsafe_seccomp(context: Object) -> bool:
    profile = context.get("seccompProfile")
    return profile is not None and profile.get("type", "") not in _SAFE_PROFILE_TYPES


def _seccomp_annotations(metadata: Object, spec: Object) -> Violation | None:
    annotations = metadata.get("annotations") or {}
    keys = {
        _SECCOMP_POD_ANNOTATION,
        *(_SECCOMP_CONTAINER_ANNOTATION + item.get("name", "") for item in containers(spec)),
    }
    found = sorted(
        f"{key}={quoted(annotations[key])}"
        for key in keys & annotations.keys()
        if annotations[key] not in {"runtime/default", "docker/default"}
        and not annotations[key].startswith("localhost/")
    )
    if not found:
        return None
    noun = plural("annotation", "annotations", len(found))
    return Violation("seccompProfile", f"forbidden {noun} {', '.join(found)}")


def seccomp_profile(_metadata: Object, spec: Object) -> Violation | None:
    setters = bad_setters(spec, has_unsafe_seccomp)
    if not setters:
        return None
    found = {context["seccompProfile"].get("type", "") for context in contexts(spec) if has_unsafe_seccomp(context)}
    what = f"must not set securityContext.seccompProfile.type to {quoted_list(sorted(found))}"
    return Violation("seccompProfile", f"{' and '.join(setters)} {what}")


def _selinux_options(allowed: set[str]) -> PodCheck:
    def options(context: Object) -> Object:
        return context.get("seLinuxOptions") or {}

    def bad_type(context: Object) -> str:
        kind: str = options(context).get("type", "")
        return "" if kind in allowed else kind

    def is_bad(context: Object) -> bool:
        return bool(bad_type(context) or options(context).get("user") or options(context).get("role"))

    def check(_metadata: Object, spec: Object) -> Violation | None:
        setters = bad_setters(spec, is_bad)
        if not setters:
            return None
        types = sorted({kind for context in contexts(spec) if (kind := bad_type(context))})
        found = [named("type", types)] if types else []
        found += [
            f"{field} may not be set"
            for field in ("user", "role")
            if any(options(context).get(field) for context in contexts(spec))
        ]
        detail = f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: {'; '.join(found)}"
        return Violation("seLinuxOptions", detail)

    return check


def _sysctls(allowed: set[str]) -> PodCheck:
    def check(_metadata: Object, spec: Object) -> Violation | None:
        wanted = [sysctl.get("name", "") for sysctl in security_context(spec).get("sysctls") or ()]
        found = [name for name in wanted if name not in allowed]
        return Violation("forbidden sysctls", ", ".join(found)) if found else None

    return check


def _windows_host_process(_metadata: Object, spec: Object) -> Violation | None:
    setters = bad_setters(spec, lambda context: bool((context.get("windowsOptions") or {}).get("hostProcess")))
    if not setters:
        return None
    detail = f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", detail)


BASELINE_CHECKS = (
    Check("appArmorProfile", ((0, _app_armor_profile),)),
    Check("capabilities_baseline", ((0, _capabilities),)),
    Check("hostNamespaces", ((0, _host_namespaces),)),
    Check("hostPathVolumes", ((0, _host_path_volumes),)),
    Check("hostPorts", ((0, _host_ports),)),
    Check("hostProbesAndHostLifecycle", ((34, _probe_hosts),)),
    Check("privileged", ((0, _privileged),)),
    Check("procMount", ((0, proc_mount), (35, _proc_mount_35))),
    Check("seLinuxOptions", ((0, _selinux_options(_SELINUX_TYPES)), (31, _selinux_options(_SELINUX_TYPES_31)))),
    Check("seccompProfile_baseline", ((0, _seccomp_annotations), (19, seccomp_profile))),
    Check(
        "sysctls",
        (
            (0, _sysctls(_SYSCTLS)),
            (27, _sysctls(_SYSCTLS_27)),
            (29, _sysctls(_SYSCTLS_29)),
            (32, _sysctls(_SYSCTLS_32)),
        ),
    ),
    Check("windowsHostProcess", ((0, _windows_host_process),)),
)
"""In the order of their messages."""
