"""The chain of built-in admission plugins, in the order in which a write passes them."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.cluster.apiserver.admission.plugins.certificate_requests import (
    admit_certificate_status,
    admit_certificate_subject,
)
from trainwright.cluster.apiserver.admission.plugins.limit_ranger import admit_limits
from trainwright.cluster.apiserver.admission.plugins.machine_annotations import check_machine_annotations
from trainwright.cluster.apiserver.admission.plugins.pod_security.plugin import admit_pod_security
from trainwright.cluster.apiserver.admission.plugins.priority import admit_priority_class, set_priority
from trainwright.cluster.apiserver.admission.plugins.resource_quota import admit_quota
from trainwright.cluster.apiserver.admission.plugins.service_account import admit_pod, wait_for_default_account
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.workloads.pod_strategy import set_default_tolerations
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
)

_IMMORTAL_NAMESPACES = {"default", "kube-system", "kube-public"}


class PluginChain:
    """With `admits_accounts` a pod needs a service account that exists, and gets its token as a volume."""

    def __init__(self, store: ObjectStore, access: AccessControl, *, admits_accounts: bool) -> None:
        self._store = store
        self._access = access
        self._admits_accounts = admits_accounts

    async def wait(self, kind: ResourceType, namespace: str) -> None:
        """Returns when controllers have created what a new object needs, or a moment later."""
        if kind.resource == PODS and self._admits_accounts:
            await wait_for_default_account(self._store, namespace)

    def authorize(
        self, user: UserInfo, kind: ResourceType, request: Attributes, new: Object, old: Object | None
    ) -> None:
        """Raises 403 for a role or binding that grants more than the user has. It comes before validation."""
        self._access.authorizer.check_escalation(user, kind.resource, request, new, old)

    def complete(self, user: UserInfo, kind: ResourceType, namespace: str, obj: Object) -> None:
        """Adds to a new, valid object what its service account decides, before validating webhooks are asked. The
        client's managed fields do not include it."""
        check_machine_annotations(self._access.authorizer, user, kind.resource, obj)
        if kind.resource == CERTIFICATE_SIGNING_REQUESTS:
            admit_certificate_subject(obj)
        elif kind.resource == SECRETS:
            self._access.tokens.fill_secret(obj, self._access.authority)
        elif kind.resource == PODS and self._admits_accounts:
            admit_pod(self._store, obj, namespace)

    def admit_create(self, kind: ResourceType, namespace: str, obj: Object) -> list[str]:
        """Refuses objects in a missing or terminating namespace, and custom resources of a terminating CRD. Sets what
        admission decides about new pods. Returns warnings."""
        if kind.resource.namespaced:
            self._check_namespace(kind, namespace, obj)
        if kind.custom:
            crd = self._store.get(CUSTOM_RESOURCE_DEFINITIONS.qualified_plural, "", kind.key)
            if crd is not None and "deletionTimestamp" in crd.obj["metadata"]:
                message = "create not allowed while custom resource definition is terminating"
                raise errors.StatusError(405, "MethodNotAllowed", message)
        if kind.resource == PODS:
            set_priority(self._store, obj)
            set_default_tolerations(obj["spec"])
        elif kind.resource == PRIORITY_CLASSES:
            admit_priority_class(self._store, obj)
        if kind.resource.namespaced:
            admit_limits(self._store, kind, namespace, obj)
        warnings = admit_pod_security(self._store, kind, namespace, obj, None)
        if kind.resource.namespaced:
            admit_quota(self._store, kind, namespace, obj)
        return warnings

    def admit_update(
        self, user: UserInfo, kind: ResourceType, namespace: str, new: Object, old: Object, subresource: str
    ) -> list[str]:
        """Admission of an update, through a subresource or of the object itself. Returns warnings."""
        if subresource != "scale":
            check_machine_annotations(self._access.authorizer, user, kind.resource, new, old)
        if kind.resource == CERTIFICATE_SIGNING_REQUESTS and subresource == "status":
            admit_certificate_status(self._access.authorizer, user, new, old)
        elif kind.resource == PRIORITY_CLASSES:
            admit_priority_class(self._store, new)
        warnings = admit_pod_security(self._store, kind, namespace, new, old, subresource)
        if kind.resource.namespaced and not subresource:
            admit_quota(self._store, kind, namespace, new, old)
        return warnings

    def admit_delete(self, kind: ResourceType, name: str) -> None:
        if kind.resource == NAMESPACES and name in _IMMORTAL_NAMESPACES:
            raise errors.forbidden(kind.resource, name, "this namespace may not be deleted")

    def _check_namespace(self, kind: ResourceType, namespace: str, obj: Object) -> None:
        """The plugin NamespaceLifecycle."""
        found = self._store.get(NAMESPACES.qualified_plural, "", namespace)
        if found is None:
            raise errors.not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.obj["metadata"]:
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(kind.resource, obj["metadata"]["name"], why, [cause])
