"""The chain of built-in admission plugins: NamespaceLifecycle, Priority, DefaultTolerationSeconds, LimitRanger,
PodSecurity and ResourceQuota, and deleted CRDs."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.admission.plugins.limit_ranger import admit_limits
from trainwright.cluster.apiserver.admission.plugins.pod_security.plugin import admit_pod_security
from trainwright.cluster.apiserver.admission.plugins.priority import admit_priority_class, set_priority
from trainwright.cluster.apiserver.admission.plugins.resource_quota import admit_quota
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.workloads.pod_strategy import set_default_tolerations
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, PRIORITY_CLASSES

_IMMORTAL_NAMESPACES = {"default", "kube-system", "kube-public"}


def admit_create(store: ObjectStore, kind: ResourceType, namespace: str, obj: Object) -> list[str]:
    """Refuses objects in a missing or terminating namespace, and custom resources of a terminating CRD. Sets what
    admission decides about new pods. Returns warnings."""
    name = obj["metadata"]["name"]
    if kind.resource.namespaced:
        found = store.get(NAMESPACES.qualified_plural, "", namespace)
        if found is None:
            raise errors.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(kind.resource, name, why, [cause])
    if kind.custom:
        crd = store.get(CUSTOM_RESOURCE_DEFINITIONS.qualified_plural, "", kind.key)
        if crd is not None and "deletionTimestamp" in crd.obj["metadata"]:
            message = "create not allowed while custom resource definition is terminating"
            raise StatusError(405, "MethodNotAllowed", message)
    if kind.resource == PODS:
        set_priority(store, obj)
        set_default_tolerations(obj["spec"])
    elif kind.resource == PRIORITY_CLASSES:
        admit_priority_class(store, obj)
    if kind.resource.namespaced:
        admit_limits(store, kind, namespace, obj)
    warnings = admit_pod_security(store, kind, namespace, obj, None)
    if kind.resource.namespaced:
        admit_quota(store, kind, namespace, obj)
    return warnings


def admit_update(
    store: ObjectStore, kind: ResourceType, namespace: str, new: Object, old: Object, subresource: str
) -> list[str]:
    """Admission of an update, through a subresource or of the object itself. Returns warnings."""
    return admit_pod_security(store, kind, namespace, new, old, subresource)


def admit_delete(kind: ResourceType, name: str) -> None:
    if kind.resource == NAMESPACES and name in _IMMORTAL_NAMESPACES:
        raise errors.forbidden(kind.resource, name, "this namespace may not be deleted")
