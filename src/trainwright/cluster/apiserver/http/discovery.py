"""Discovery of the served resources: aggregated for kubectl, unaggregated for other clients."""

import base64
import hashlib
from collections.abc import Iterable

from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.objects import Object
from trainwright.objects.resources import Resource

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
SUBRESOURCE_VERBS = {
    "status": ["get", "patch", "update"],
    "approval": ["get", "patch", "update"],
    "scale": ["get", "patch", "update"],
    "log": ["get"],
    "binding": ["create"],
    "eviction": ["create"],
    "finalize": ["update"],
    "exec": ["create", "get"],
    "attach": ["create", "get"],
    "portforward": ["create", "get"],
    "token": ["create"],
}
SUBRESOURCE_KINDS = {
    "scale": ("autoscaling", "v1", "Scale"),
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "exec": ("", "v1", "PodExecOptions"),
    "attach": ("", "v1", "PodAttachOptions"),
    "portforward": ("", "v1", "PodPortForwardOptions"),
    "token": ("authentication.k8s.io", "v1", "TokenRequest"),
}


def wants_aggregated(accept: str) -> bool:
    return "g=apidiscovery.k8s.io" in accept and "v=v2;" in accept.replace(" ", "") + ";"


def aggregated(registry: Registry, *, core: bool) -> Object:
    """APIGroupDiscoveryList of /api (the core group) or /apis (all others)."""
    groups = [group for group in _groups(registry) if (group == "") is core]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": version,
                        "freshness": "Current",
                        "resources": _aggregated_resources(registry, group, version),
                    }
                    for version in _groups(registry)[group]
                ],
            }
            for group in groups
        ],
    }


def api_versions(address: str) -> Object:
    """Unaggregated discovery of /api."""
    served = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": served}


def api_group_list(registry: Registry) -> Object:
    """Unaggregated discovery of /apis."""
    groups = [api_group(registry, group) for group in _groups(registry) if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(registry: Registry, group: str) -> Object | None:
    versions = _groups(registry).get(group)
    if not versions:
        return None
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": entries, "preferredVersion": entries[0]}


def api_resource_list(registry: Registry, group: str, version: str) -> Object | None:
    """Unaggregated discovery of /api/v1 and /apis/GROUP/VERSION."""
    if version not in _groups(registry).get(group, []):
        return None
    resources: list[Object] = []
    for kind in _types(registry, group, version):
        resources += _api_resources(kind)
    for resource, verbs in _computed(registry, group, version):
        resources.append(
            {
                "name": resource.plural,
                "singularName": resource.kind.lower(),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": verbs,
            }
        )
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _groups(registry: Registry) -> dict[str, list[str]]:
    groups = registry.versions()
    for resource in registry.computed:
        groups.setdefault(resource.group, [resource.version])
    return groups


def _computed(registry: Registry, group: str, version: str) -> list[tuple[Resource, list[str]]]:
    wanted = (group, version)
    return [
        (resource, list(verbs))
        for resource, verbs in registry.computed.items()
        if (resource.group, resource.version) == wanted
    ]


def _types(registry: Registry, group: str, version: str) -> Iterable[ResourceType]:
    return (kind for kind in registry.types() if (kind.resource.group, kind.resource.version) == (group, version))


def _aggregated_resources(registry: Registry, group: str, version: str) -> list[Object]:
    computed = [
        {
            "resource": resource.plural,
            "responseKind": {"group": group, "version": version, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.kind.lower(),
            "verbs": verbs,
        }
        for resource, verbs in _computed(registry, group, version)
    ]
    return [*(_aggregated_resource(kind) for kind in _types(registry, group, version)), *computed]


def _aggregated_resource(kind: ResourceType) -> Object:
    resource = kind.resource
    entry: Object = {
        "resource": resource.plural,
        "responseKind": _response_kind(kind, ""),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _VERBS,
        **_short_names_and_categories(kind),
    }
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(kind, name),
                "verbs": SUBRESOURCE_VERBS[name],
            }
            for name in sorted(kind.subresources)
        ]
    return entry


def _short_names_and_categories(kind: ResourceType) -> Object:
    lists = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {field: names for field, names in lists.items() if names}


def _response_kind(kind: ResourceType, subresource: str) -> Object:
    own = (kind.resource.group, kind.resource.version, kind.resource.kind)
    group, version, name = SUBRESOURCE_KINDS.get(subresource, own)
    return {"group": group, "version": version, "kind": name}


def _api_resources(kind: ResourceType) -> list[Object]:
    resource = kind.resource
    entry: Object = {
        "name": resource.plural,
        "singularName": kind.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _CUSTOM_VERBS if kind.custom else _VERBS,
        **_short_names_and_categories(kind),
        "storageVersionHash": _storage_version_hash(kind),
    }
    entries = [entry]
    for name in sorted(kind.subresources, reverse=kind.custom):  # status before scale
        shown = _response_kind(kind, name)
        below = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
        }
        if name in SUBRESOURCE_KINDS and shown["group"]:
            below |= {"group": shown["group"], "version": shown["version"]}
        entries.append(below | {"kind": shown["kind"], "verbs": SUBRESOURCE_VERBS[name]})
    return entries


def _storage_version_hash(kind: ResourceType) -> str:
    """Changes when the objects are stored in another version."""
    digest = hashlib.sha256(f"{kind.storage_api_version}/{kind.resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()
