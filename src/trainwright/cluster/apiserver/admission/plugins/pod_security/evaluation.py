"""Evaluates pods: the checks of a level and version, and the warnings about the pods of a namespace."""

from collections.abc import Iterable
from functools import cache

from trainwright.cluster.apiserver.admission.plugins.pod_security.baseline_checks import BASELINE_CHECKS
from trainwright.cluster.apiserver.admission.plugins.pod_security.check import PodCheck, Violation
from trainwright.cluster.apiserver.admission.plugins.pod_security.policy import Level, LevelVersion
from trainwright.cluster.apiserver.admission.plugins.pod_security.restricted_checks import RESTRICTED_CHECKS
from trainwright.objects import Object

NEWEST_MINOR = max(first for check in (*BASELINE_CHECKS, *RESTRICTED_CHECKS) for first, _ in check.versions)
"""Later versions have the same checks."""

_MOST_PODS = 3000


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
