"""Pod Security admission of a write: refuses pods, warns about workloads, checks the labels of namespaces.

No user and no namespace is exempt. The labels of a namespace choose a level of the Pod Security Standards for each
mode. Invalid labels of old namespaces count as the strictest policy that is enforced, and as none that warns or audits.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.admission.plugins.pod_security.baseline_checks import BASELINE_CHECKS
from trainwright.cluster.apiserver.admission.plugins.pod_security.check import PodCheck, Violation
from trainwright.cluster.apiserver.admission.plugins.pod_security.restricted_checks import RESTRICTED_CHECKS
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, invalid
from trainwright.objects.kinds.pod_security import POD_SECURITY_PREFIX as PREFIX
from trainwright.objects.paths import value_at
from trainwright.objects.resources import (
    BATCH_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)

_VERSION = re.compile(r"v1\.([0-9]|[1-9][0-9]*)")
_GREATEST_INTEGER = 2**63 - 1
_TEMPLATES = {
    resource.qualified_plural: ("spec", "template")
    for resource in (BATCH_JOBS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
}
NEWEST_MINOR = max(first for check in (*BASELINE_CHECKS, *RESTRICTED_CHECKS) for first, _ in check.versions)
"""Later versions have the same checks."""

_MOST_PODS = 3000


class Level(IntEnum):
    """A higher level allows less."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


_LEVELS = {level.name.lower(): level for level in Level}


@dataclass(frozen=True, slots=True)
class LevelVersion:
    level: Level
    minor: int | None = None
    """The version of Kubernetes whose checks apply, such as 25 for v1.25; None for the latest."""

    def __str__(self) -> str:
        version = "latest" if self.minor is None else f"v1.{self.minor}"
        return f"{self.level.name.lower()}:{version}"


_NO_LIMITS = LevelVersion(Level.PRIVILEGED)


@dataclass(frozen=True, slots=True)
class Policy:
    enforce: LevelVersion = _NO_LIMITS
    warn: LevelVersion = _NO_LIMITS


def policy_of(labels: Mapping[str, str]) -> tuple[Policy, list[FieldError]]:
    """The policy, and the errors of its labels.

    What is enforced is warned about too, unless a label says otherwise. The mode `audit` has valid labels and no other
    effect, because there is no audit log.
    """
    if not any(key.startswith(PREFIX) for key in labels):
        return Policy(), []
    enforce, enforce_errors = _mode(labels, "enforce", Level.RESTRICTED)
    _, audit_errors = _mode(labels, "audit", Level.PRIVILEGED)
    warn, warn_errors = _mode(labels, "warn", Level.PRIVILEGED)
    if PREFIX + "warn" not in labels and labels.get(PREFIX + "enforce") in _LEVELS:
        minor = warn.minor if PREFIX + "warn-version" in labels else enforce.minor
        warn = warn if enforce.level == Level.PRIVILEGED else LevelVersion(enforce.level, minor)
    return Policy(enforce, warn), [*enforce_errors, *audit_errors, *warn_errors]


def _mode(labels: Mapping[str, str], mode: str, fallback: Level) -> tuple[LevelVersion, list[FieldError]]:
    """The level and version of a mode. An invalid level counts as `fallback`, an invalid version as the latest."""
    chosen, found = _NO_LIMITS, []
    if (level := labels.get(PREFIX + mode)) is not None:
        if level not in _LEVELS:
            found.append(_label_error(mode, level, f"must be one of {', '.join(_LEVELS)}"))
        chosen = replace(chosen, level=_LEVELS.get(level, fallback))
    version_label = f"{mode}-version"
    if (version := labels.get(PREFIX + version_label, "latest")) != "latest":
        match = _VERSION.fullmatch(version)
        if match is None or int(match[1]) > _GREATEST_INTEGER:
            found.append(_label_error(version_label, version, 'must be "latest" or "v1.x"'))
        else:
            chosen = replace(chosen, minor=int(match[1]))
    return chosen, found


def _label_error(label: str, value: str, detail: str) -> FieldError:
    return invalid(f"metadata.labels[{PREFIX}{label}]", value, detail)


def admit_pod_security(
    store: ObjectStore, kind: ResourceType, namespace: str, new: Object, old: Object | None, subresource: str = ""
) -> list[str]:
    """The warnings about a new object, or about the update of `old`. Raises 403 for a pod that violates what its
    namespace enforces, and 422 for a namespace with invalid labels."""
    if subresource and (kind.resource != PODS or subresource == "status"):
        return []
    if kind.resource == NAMESPACES:
        return _admit_namespace(store, new, old)
    if kind.resource == PODS:
        return _admit_pod(_policy(store, namespace), new, old)
    if kind.key in _TEMPLATES and (template := value_at(new, *_TEMPLATES[kind.key])):
        return _warnings(_policy(store, namespace).warn, template)
    return []


def _admit_namespace(store: ObjectStore, new: Object, old: Object | None) -> list[str]:
    name = new["metadata"]["name"]
    policy, found = policy_of(_labels(new))
    old_policy, old_found = policy_of(_labels(old or {}))
    if found and (old is None or found != old_found):
        raise errors.invalid(NAMESPACES, name, found)
    enforce, before = policy.enforce, old_policy.enforce
    relaxed = enforce.minor == before.minor and enforce.level <= before.level
    if old is None or relaxed or enforce.level == Level.PRIVILEGED:
        return []
    return pod_warnings(name, (stored.obj for stored in store.list(PODS.qualified_plural, name)), enforce)


def _admit_pod(policy: Policy, pod: Object, old: Object | None) -> list[str]:
    if old is not None and not _is_significant(pod["spec"], old["spec"]):
        return []
    if found := violations(policy.enforce, pod["metadata"], pod["spec"]):
        raise errors.forbidden(PODS, pod["metadata"]["name"], f"violates {_described(policy.enforce, found)}")
    return _warnings(policy.warn, pod)


def _warnings(warn: LevelVersion, pod: Object) -> list[str]:
    """`pod` may be a template."""
    found = violations(warn, pod.get("metadata") or {}, pod.get("spec") or {})
    return [f"would violate {_described(warn, found)}"] if found else []


def _described(standard: LevelVersion, found: list[Violation]) -> str:
    return f'PodSecurity "{standard}": {", ".join(map(str, found))}'


def _is_significant(new: Object, old: Object) -> bool:
    """True if an update gives a pod another image or another container. Its securityContext cannot change."""
    groups = ("containers", "initContainers", "ephemeralContainers")
    return any(_images(new, group) - _images(old, group) for group in groups)


def _images(spec: Object, group: str) -> set[tuple[str, str]]:
    return {(container.get("name", ""), container.get("image", "")) for container in spec.get(group) or ()}


def _policy(store: ObjectStore, namespace: str) -> Policy:
    found = store.get(NAMESPACES.qualified_plural, "", namespace)
    return policy_of(_labels(found.obj))[0] if found else Policy()


def _labels(obj: Object) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def violations(standard: LevelVersion, metadata: Object, spec: Object) -> list[Violation]:
    """What a pod, or a pod template, violates."""
    if standard.level == Level.PRIVILEGED:
        return []
    minor = NEWEST_MINOR if standard.minor is None else min(standard.minor, NEWEST_MINOR)
    return [found for check in _checks(standard.level, minor) if (found := check(metadata, spec))]


def pod_warnings(namespace: str, pods: Iterable[Object], enforce: LevelVersion) -> list[str]:
    """Which pods of a namespace violate its new policy: those with the same violations in one line."""
    ordered = _one_of_each_controller_first(pods)
    names: dict[str, list[str]] = {}
    for pod in ordered[:_MOST_PODS]:
        if found := violations(enforce, pod["metadata"], pod["spec"]):
            names.setdefault(", ".join(violation.reason for violation in found), []).append(pod["metadata"]["name"])
    warnings = []
    if len(ordered) > _MOST_PODS:
        checked = f"the first {_MOST_PODS} of {len(ordered)} existing pods"
        warnings.append(f"new PodSecurity enforce level only checked against {checked}")
    if names:
        what = f'violate the new PodSecurity enforce level "{enforce}"'
        warnings.append(f'existing pods in namespace "{namespace}" {what}')
    return warnings + sorted(f"{_first_of(several)}: {reasons}" for reasons, several in names.items())


@cache
def _checks(level: Level, minor: int) -> tuple[PodCheck, ...]:
    added = RESTRICTED_CHECKS if level == Level.RESTRICTED else ()
    restricted = [(check, at) for check in added if (at := check.at(minor))]
    overridden = {check.overrides for check, _ in restricted}
    baseline = [at for check in BASELINE_CHECKS if check.id not in overridden and (at := check.at(minor))]
    return (*baseline, *(at for _, at in restricted))


def _one_of_each_controller_first(pods: Iterable[Object]) -> list[Object]:
    """If not all pods can be checked, the replicas of one controller may be left out."""
    first, replicas = [], []
    seen: set[str] = set()
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        controller = next((owner.get("uid", "") for owner in owners if owner.get("controller")), None)
        if controller is None or controller not in seen:
            first.append(pod)
        else:
            replicas.append(pod)
        if controller is not None:
            seen.add(controller)
    return first + replicas


def _first_of(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other {'pod' if others == 1 else 'pods'})"
