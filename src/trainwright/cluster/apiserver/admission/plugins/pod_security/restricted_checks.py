"""The checks that the level `restricted` adds. Texts are those of the real API server."""

from trainwright.cluster.apiserver.admission.plugins.pod_security.baseline_checks import (
    has_unsafe_seccomp,
    proc_mount,
    seccomp_profile,
)
from trainwright.cluster.apiserver.admission.plugins.pod_security.check import (
    Check,
    PodCheck,
    Violation,
    bad_containers,
    bad_setters,
    contexts,
    has_user_namespace,
    is_windows,
    named,
    plural,
    quoted_list,
    security_context,
)
from trainwright.objects import Object

_ALLOWED_VOLUMES = (
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
)  # fmt: skip
_OTHER_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def _unless_windows(check: PodCheck) -> PodCheck:
    """From 1.25 on: fields that pods of Windows cannot have are not required of them."""
    return lambda metadata, spec: None if is_windows(spec) else check(metadata, spec)


def _unless_user_namespace(check: PodCheck) -> PodCheck:
    return lambda metadata, spec: None if has_user_namespace(spec) else check(metadata, spec)


def _privilege_escalation(_metadata: Object, spec: Object) -> Violation | None:
    names = bad_containers(spec, lambda context: context.get("allowPrivilegeEscalation") is not False)
    if not names:
        return None
    detail = f"{named('container', names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", detail)


def _capabilities(_metadata: Object, spec: Object) -> Violation | None:
    def capabilities(context: Object, field: str) -> set[str]:
        return {*((context.get("capabilities") or {}).get(field) or ())}

    def added(context: Object) -> set[str]:
        return capabilities(context, "add") - {"NET_BIND_SERVICE"}

    details = []
    if names := bad_containers(spec, lambda context: "ALL" not in capabilities(context, "drop")):
        details.append(f'{named("container", names)} must set securityContext.capabilities.drop=["ALL"]')
    if names := bad_containers(spec, lambda context: bool(added(context))):
        found = quoted_list(sorted(set().union(*map(added, contexts(spec)))))
        details.append(f"{named('container', names)} must not include {found} in securityContext.capabilities.add")
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def _volume_types(_metadata: Object, spec: Object) -> Violation | None:
    bad = [
        volume for volume in spec.get("volumes") or () if all(volume.get(source) is None for source in _ALLOWED_VOLUMES)
    ]
    if not bad:
        return None
    types = sorted(
        {next((kind for kind in _OTHER_VOLUMES if volume.get(kind) is not None), "unknown") for volume in bad}
    )
    names = [volume.get("name", "") for volume in bad]
    verb = plural("uses", "use", len(names))
    return Violation(
        "restricted volume types", f"{named('volume', names)} {verb} {named('restricted volume type', types)}"
    )


def _run_as_non_root(_metadata: Object, spec: Object) -> Violation | None:
    reason = "runAsNonRoot != true"
    if setters := bad_setters(spec, lambda context: context.get("runAsNonRoot") is False):
        return Violation(reason, f"{' and '.join(setters)} must not set securityContext.runAsNonRoot=false")
    if security_context(spec).get("runAsNonRoot"):
        return None
    if names := bad_containers(spec, lambda context: context.get("runAsNonRoot") is None):
        return Violation(reason, f"pod or {named('container', names)} must set securityContext.runAsNonRoot=true")
    return None


def _run_as_user(_metadata: Object, spec: Object) -> Violation | None:
    setters = bad_setters(spec, lambda context: context.get("runAsUser") == 0)
    return Violation("runAsUser=0", f"{' and '.join(setters)} must not set runAsUser=0") if setters else None


def _seccomp_profile(metadata: Object, spec: Object) -> Violation | None:
    if unsafe := seccomp_profile(metadata, spec):
        return unsafe
    pod = security_context(spec)
    if pod.get("seccompProfile") is not None and not has_unsafe_seccomp(pod):
        return None
    if names := bad_containers(spec, lambda context: context.get("seccompProfile") is None):
        what = 'must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
        return Violation("seccompProfile", f"pod or {named('container', names)} {what}")
    return None


RESTRICTED_CHECKS = (
    Check("allowPrivilegeEscalation", ((8, _privilege_escalation), (25, _unless_windows(_privilege_escalation)))),
    Check(
        "capabilities_restricted",
        ((22, _capabilities), (25, _unless_windows(_capabilities))),
        overrides="capabilities_baseline",
    ),
    Check("procMount_restricted", ((35, proc_mount),), overrides="procMount"),
    Check("restrictedVolumes", ((0, _volume_types),), overrides="hostPathVolumes"),
    Check("runAsNonRoot", ((0, _run_as_non_root), (35, _unless_user_namespace(_run_as_non_root)))),
    Check("runAsUser", ((23, _run_as_user), (35, _unless_user_namespace(_run_as_user)))),
    Check(
        "seccompProfile_restricted",
        ((19, _seccomp_profile), (25, _unless_windows(_seccomp_profile))),
        overrides="seccompProfile_baseline",
    ),
)
"""In the order of their messages, which come after those of the baseline."""
