"""The admission plugin ServiceAccount: every new pod runs as an account that exists, and gets its token as a volume."""

import asyncio

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.apiserver.writes.metadata import generated_name
from trainwright.objects import Object
from trainwright.objects.resources import PODS, SERVICE_ACCOUNTS, Resource

MOUNTS_TOKENS = False
"""Whether pods get the volume `kube-api-access-…`; the node must support projected volumes with tokens."""

_DEFAULT = "default"
_VOLUME_PREFIX = "kube-api-access-"
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_MIRROR = "kubernetes.io/config.mirror"
_DEFAULT_ACCOUNT_TRIES, _TRY_SECONDS = 40, 0.05
"""The controller creates the account `default` shortly after its namespace."""

_SERVICE_ACCOUNT = Resource("", "v1", "serviceaccount", "ServiceAccount")


async def admit_pod(store: ObjectStore, pod: Object, namespace: str) -> None:
    """Completes a new pod in place; raises 403 if its account does not exist."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return  # validation refuses it
    name = pod["metadata"].get("name", "")
    if _MIRROR in (pod["metadata"].get("annotations") or {}):
        if spec.get("serviceAccountName"):
            raise errors.forbidden(PODS, name, "a mirror pod may not reference service accounts")
        return
    wanted = spec.get("serviceAccountName") or spec.get("serviceAccount") or _DEFAULT
    account = await _find(store, namespace, wanted)
    if account is None:
        missing = errors.not_found(_SERVICE_ACCOUNT, wanted).message
        raise errors.forbidden(PODS, name, f"error looking up service account {namespace}/{wanted}: {missing}")
    spec["serviceAccountName"] = spec["serviceAccount"] = wanted
    if MOUNTS_TOKENS and _mounts_token(account, spec):
        mount_token(spec)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": one.get("name", "")} for one in account["imagePullSecrets"]]


def mount_token(spec: Object) -> None:
    """Adds the projected volume with token, CA and namespace, and mounts it in every container."""
    volumes = spec.get("volumes") or []
    own = next((one["name"] for one in volumes if str(one.get("name")).startswith(_VOLUME_PREFIX)), None)
    volume = own or generated_name(_VOLUME_PREFIX)
    needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.get("volumeMounts") or []
        if all(one.get("mountPath") != _MOUNT_PATH for one in mounts):
            container["volumeMounts"] = [*mounts, {"name": volume, "readOnly": True, "mountPath": _MOUNT_PATH}]
            needed = True
    if needed and own is None:
        spec["volumes"] = [*volumes, {"name": volume, "projected": _token_sources()}]


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


async def _find(store: ObjectStore, namespace: str, name: str) -> Object | None:
    for attempt in range(_DEFAULT_ACCOUNT_TRIES):
        stored = store.get(SERVICE_ACCOUNTS.qualified_plural, namespace, name)
        if stored is not None:
            return stored.obj
        if name != _DEFAULT or store.get("namespaces", "", namespace) is None:
            return None
        if attempt < _DEFAULT_ACCOUNT_TRIES - 1:
            await asyncio.sleep(_TRY_SECONDS)
    return None
