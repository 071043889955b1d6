"""The table of Kubernetes' own resources that the embedded server serves. A new one is a row here, not a handler."""

from collections.abc import Callable, Mapping

from trainwright.cluster.apiserver.resources import builtin_rules as rules
from trainwright.cluster.apiserver.resources import printer_columns, rbac_rules
from trainwright.cluster.apiserver.resources.crds import CRD_RULES
from trainwright.cluster.apiserver.resources.pod_columns import POD
from trainwright.cluster.apiserver.resources.pod_rules import POD_RULES
from trainwright.cluster.apiserver.resources.resource_type import Column, ObjectSchema, ResourceType, Rules
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.objects import resources
from trainwright.objects.names import (
    dns_1035_label_problem,
    dns_label_problem,
    dns_subdomain_problem,
    path_segment_problem,
)
from trainwright.objects.resources import Resource

_EVENT_FIELDS = {
    f"involvedObject.{name}": ""
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
}
_EVENT_FIELDS |= {"reason": "", "type": "", "reportingComponent": "", "source": ""}
_POD_FIELDS = {
    "spec.nodeName": "",
    "spec.restartPolicy": "",
    "spec.schedulerName": "",
    "spec.serviceAccountName": "",
    "spec.hostNetwork": "false",
    "status.phase": "",
    "status.podIP": "",
    "status.nominatedNodeName": "",
}


def _row(
    resource: Resource,
    *short_names: str,
    columns: tuple[Column, ...] = printer_columns.DEFAULT,
    rules: Rules = Rules(),  # noqa: B008  # frozen
    subresources: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    selectable: Mapping[str, str] | None = None,
    name_problem: Callable[[str], str | None] = dns_subdomain_problem,
    counts_generation: bool = False,
    graceful: bool = False,
    returns_deleted: bool = False,
) -> ResourceType:
    return ResourceType(
        resource=resource,
        singular=resource.kind.lower(),
        schema=ObjectSchema(definition(resource.kind), definition, builtin=resource.kind),
        columns=columns,
        short_names=short_names,
        categories=categories,
        subresources=frozenset(subresources),
        rules=rules,
        name_problem=name_problem,
        selectable=selectable or {},
        storage_version=resource.version,
        counts_generation=counts_generation,
        graceful=graceful,
        returns_deleted=returns_deleted,
    )


def builtin_types() -> list[ResourceType]:
    """One row per resource, in the order of `kubectl api-resources`."""
    return [
        _row(resources.CONFIG_MAPS, "cm", columns=printer_columns.CONFIG_MAP, rules=rules.CONFIG_MAP_RULES),
        _row(resources.EVENTS, "ev", columns=printer_columns.EVENT, rules=rules.EVENT_RULES, selectable=_EVENT_FIELDS),
        _row(
            resources.NAMESPACES,
            "ns",
            columns=printer_columns.NAMESPACE,
            rules=rules.NAMESPACE_RULES,
            subresources=("status", "finalize"),
            selectable={"status.phase": ""},
            name_problem=dns_label_problem,
        ),
        _row(
            resources.NODES,
            "no",
            columns=printer_columns.NODE,
            rules=rules.NODE_RULES,
            subresources=("status",),
            selectable={"spec.unschedulable": "false"},
        ),
        _row(
            resources.PERSISTENT_VOLUME_CLAIMS,
            "pvc",
            columns=printer_columns.CLAIM,
            rules=rules.CLAIM_RULES,
            subresources=("status",),
            returns_deleted=True,
        ),
        _row(
            resources.PERSISTENT_VOLUMES,
            "pv",
            columns=printer_columns.VOLUME,
            rules=rules.VOLUME_RULES,
            subresources=("status",),
            returns_deleted=True,
        ),
        _row(
            resources.PODS,
            "po",
            columns=POD,
            rules=POD_RULES,
            subresources=("status", "log", "binding", "eviction", "exec", "attach", "portforward"),
            categories=("all",),
            selectable=_POD_FIELDS,
            counts_generation=True,
            graceful=True,
            returns_deleted=True,
        ),
        _row(resources.SECRETS, columns=printer_columns.SECRET, rules=rules.SECRET_RULES, selectable={"type": ""}),
        _row(resources.SERVICE_ACCOUNTS, "sa", returns_deleted=True),
        _row(
            resources.SERVICES,
            "svc",
            columns=printer_columns.SERVICE,
            rules=rules.SERVICE_RULES,
            subresources=("status",),
            categories=("all",),
            selectable={"spec.clusterIP": "", "spec.type": ""},
            name_problem=dns_1035_label_problem,
            returns_deleted=True,
        ),
        _row(
            resources.CUSTOM_RESOURCE_DEFINITIONS,
            "crd",
            "crds",
            columns=printer_columns.CREATED_AT,
            rules=CRD_RULES,
            subresources=("status",),
            categories=("api-extensions",),
            counts_generation=True,
        ),
        _row(resources.LEASES, columns=printer_columns.LEASE),
        _row(
            resources.CLUSTER_ROLE_BINDINGS,
            columns=printer_columns.ROLE_BINDING,
            rules=rbac_rules.CLUSTER_ROLE_BINDING_RULES,
            name_problem=path_segment_problem,
        ),
        _row(
            resources.CLUSTER_ROLES,
            columns=printer_columns.CREATED_AT,
            rules=rbac_rules.CLUSTER_ROLE_RULES,
            name_problem=path_segment_problem,
        ),
        _row(
            resources.ROLE_BINDINGS,
            columns=printer_columns.ROLE_BINDING,
            rules=rbac_rules.ROLE_BINDING_RULES,
            name_problem=path_segment_problem,
        ),
        _row(
            resources.ROLES,
            columns=printer_columns.CREATED_AT,
            rules=rbac_rules.ROLE_RULES,
            name_problem=path_segment_problem,
        ),
        _row(resources.STORAGE_CLASSES, "sc", columns=printer_columns.STORAGE_CLASS, rules=rules.STORAGE_CLASS_RULES),
    ]
