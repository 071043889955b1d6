"""Pod Security admission of a write: refuses pods, warns about workloads, checks the labels of namespaces.

No user and no namespace is exempt.
"""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.admission.plugins.pod_security.check import Violation
from trainwright.cluster.apiserver.admission.plugins.pod_security.evaluation import pod_warnings, violations
from trainwright.cluster.apiserver.admission.plugins.pod_security.policy import Level, LevelVersion, Policy, policy_of
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
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

_TEMPLATES = {
    resource.qualified_plural: ("spec", "template")
    for resource in (BATCH_JOBS, DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
}


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
