"""The admission plugin ServiceAccount: every new pod runs as an account that exists, and gets its token as a volume."""

import asyncio

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.apiserver.writes.create_update import generated_name
from trainwright.objects import Object
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource

_DEFAULT = "default"
_VOLUME_PREFIX = "kube-api-access-"
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_DEFAULT_ACCOUNT_TRIES, _TRY_SECONDS = 50, 0.02

_SERVICE_ACCOUNT = Resource("", "v1", "serviceaccount", "ServiceAccount")


async def wait_for_default_account(store: ObjectStore, namespace: str) -> None:
    """Returns when the namespace has its account `default`, or a moment later: the controller creates it."""
    for _ in range(_DEFAULT_ACCOUNT_TRIES):
        missing = store.get(SERVICE_ACCOUNTS.qualified_plural, namespace, _DEFAULT) is None
        if not missing or not _is_active(store, namespace):
            return
        await asyncio.sleep(_TRY_SECONDS)


def admit_pod(store: ObjectStore, pod: Object, namespace: str) -> None:
    """Completes a new, valid pod in place; raises 403 if its account does not exist."""
    if MIRROR in (pod["metadata"].get("annotations") or {}) or not _is_active(store, namespace):
        return
    spec = pod["spec"]
    wanted = spec["serviceAccountName"]
    stored = store.get(SERVICE_ACCOUNTS.qualified_plural, namespace, wanted)
    if stored is None:
        missing = errors.not_found(_SERVICE_ACCOUNT, wanted).message
        why = f"error looking up service account {namespace}/{wanted}: {missing}"
        raise errors.forbidden(PODS, pod["metadata"]["name"], why)
    account = stored.obj
    if _mounts_token(account, spec):
        mount_token(spec)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": secret.get("name", "")} for secret in account["imagePullSecrets"]]


def mount_token(spec: Object) -> None:
    """Adds the projected volume with token, CA and namespace, and mounts it in every container."""
    volumes = spec.get("volumes") or []
    own = next((volume["name"] for volume in volumes if str(volume.get("name")).startswith(_VOLUME_PREFIX)), None)
    volume = own or generated_name(_VOLUME_PREFIX)
    needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.get("volumeMounts") or []
        if all(mount.get("mountPath") != _MOUNT_PATH for mount in mounts):
            container["volumeMounts"] = [*mounts, {"name": volume, "readOnly": True, "mountPath": _MOUNT_PATH}]
            needed = True
    if needed and own is None:
        spec["volumes"] = [*volumes, {"name": volume, "projected": _token_sources()}]


def _is_active(store: ObjectStore, namespace: str) -> bool:
    """The plugin NamespaceLifecycle refuses pods in a missing or terminating namespace."""
    found = store.get(NAMESPACES.qualified_plural, "", namespace)
    return found is not None and "deletionTimestamp" not in found.obj["metadata"]


def _token_sources() -> Object:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    }


def _mounts_token(account: Object, spec: Object) -> bool:
    """The pod decides, then the account; the default is yes."""
    for owner in (spec, account):
        if (wanted := owner.get("automountServiceAccountToken")) is not None:
            return bool(wanted)
    return True
