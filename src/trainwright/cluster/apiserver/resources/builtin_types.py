"""The built-in resources that the embedded server serves. A new one is a row here, not a handler."""

from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.columns import printer_columns, workload_printer_columns
from trainwright.cluster.apiserver.resources.crds import CRD_STRATEGY
from trainwright.cluster.apiserver.resources.resource_type import Column, ResourceType, ScalePaths, Strategy
from trainwright.cluster.apiserver.resources.strategies import core_strategies, rbac_strategies, webhook_strategies
from trainwright.cluster.apiserver.resources.strategies.certificate_strategy import CERTIFICATE_SIGNING_REQUEST
from trainwright.cluster.apiserver.resources.strategies.services import endpoint_strategies
from trainwright.cluster.apiserver.resources.strategies.services.service_strategy import SERVICE
from trainwright.cluster.apiserver.resources.strategies.workloads import job_strategy, workload_strategies
from trainwright.cluster.apiserver.resources.strategies.workloads.pod_strategy import POD_STRATEGY
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.decoding import ObjectSchema
from trainwright.cluster.apiserver.schema.structural import Schema
from trainwright.objects import Object, resources
from trainwright.objects.field_errors import ErrorType, FieldError
from trainwright.objects.names import dns_1035_label_problem, dns_label_problem, path_segment_problem
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
_LEGACY_DEPLOYMENT = (
    "extensions/v1beta1 Deployment is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 Deployment"
)
_NO_EPHEMERAL_CONTAINERS = (
    "ephemeral containers are not supported by the embedded cluster: start a program in a container of the pod with "
    "`kubectl exec -it -n {namespace} {name} -- sh`"
)
"""For `kubectl debug`."""
_REPLICAS = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def _row(
    resource: Resource,
    *short_names: str,
    columns: tuple[Column, ...] = printer_columns.DEFAULT,
    subresources: tuple[str, ...] = (),
    stored_as: Resource | None = None,
    schema: Schema | None = None,
    **settings: Any,
) -> ResourceType:
    """`settings` are other fields of a ResourceType."""
    return ResourceType(
        resource=resource,
        singular=resource.kind.lower(),
        schema=ObjectSchema(schema or definition(resource.kind), definition, builtin=resource.kind),
        columns=columns,
        short_names=short_names,
        subresources=frozenset(subresources),
        storage_version=(stored_as or resource).version,
        storage_group=None if stored_as is None else stored_as.group,
        **settings,
    )


def _refused_row(resource: Resource, *short_names: str, instead: str) -> ResourceType:
    """A kind that nothing here acts on. It is listed, because `kubectl apply --prune` asks for it, and never created;
    objects of earlier versions can be read, changed and deleted."""

    def refuse(obj: Object) -> None:
        error = FieldError("kind", ErrorType.FORBIDDEN, f"the embedded cluster {instead}")
        raise errors.invalid(resource, obj["metadata"]["name"], [error])

    return _row(resource, *short_names, strategy=Strategy(prepare_for_create=refuse))


def builtin_types() -> list[ResourceType]:
    """One row per resource, in the order of `kubectl api-resources`."""
    return [
        _row(resources.CONFIG_MAPS, "cm", columns=printer_columns.CONFIG_MAP, strategy=core_strategies.CONFIG_MAP),
        _row(
            resources.ENDPOINTS,
            "ep",
            columns=printer_columns.ENDPOINTS,
            strategy=endpoint_strategies.ENDPOINTS,
            warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
        _row(
            resources.EVENTS,
            "ev",
            columns=printer_columns.EVENT,
            strategy=core_strategies.EVENT,
            selectable_fields=_EVENT_FIELDS,
        ),
        _row(
            resources.LIMIT_RANGES, "limits", columns=printer_columns.CREATED_AT, strategy=core_strategies.LIMIT_RANGE
        ),
        _row(
            resources.NAMESPACES,
            "ns",
            columns=printer_columns.NAMESPACE,
            strategy=core_strategies.NAMESPACE,
            subresources=("status", "finalize"),
            selectable_fields={"status.phase": ""},
            validate_name=dns_label_problem,
        ),
        _row(
            resources.NODES,
            "no",
            columns=printer_columns.NODE,
            strategy=core_strategies.NODE,
            subresources=("status",),
            selectable_fields={"spec.unschedulable": "false"},
        ),
        _row(
            resources.PERSISTENT_VOLUME_CLAIMS,
            "pvc",
            columns=printer_columns.PERSISTENT_VOLUME_CLAIM,
            strategy=core_strategies.PERSISTENT_VOLUME_CLAIM,
            subresources=("status",),
            returns_deleted_object=True,
        ),
        _row(
            resources.PERSISTENT_VOLUMES,
            "pv",
            columns=printer_columns.PERSISTENT_VOLUME,
            strategy=core_strategies.PERSISTENT_VOLUME,
            subresources=("status",),
            returns_deleted_object=True,
        ),
        _row(
            resources.PODS,
            "po",
            columns=workload_printer_columns.POD,
            strategy=POD_STRATEGY,
            subresources=("status", "log", "binding", "eviction", "exec", "attach", "portforward"),
            refused_subresources={"ephemeralcontainers": _NO_EPHEMERAL_CONTAINERS},
            categories=("all",),
            selectable_fields=_POD_FIELDS,
            counts_generation=True,
            graceful_deletion=True,
            returns_deleted_object=True,
        ),
        _row(
            resources.RESOURCE_QUOTAS,
            "quota",
            columns=printer_columns.RESOURCE_QUOTA,
            strategy=core_strategies.RESOURCE_QUOTA,
            subresources=("status",),
            returns_deleted_object=True,
        ),
        _row(
            resources.SECRETS,
            columns=printer_columns.SECRET,
            strategy=core_strategies.SECRET,
            selectable_fields={"type": ""},
        ),
        _row(resources.SERVICE_ACCOUNTS, "sa", subresources=("token",), returns_deleted_object=True),
        _row(
            resources.SERVICES,
            "svc",
            columns=printer_columns.SERVICE,
            strategy=SERVICE,
            subresources=("status",),
            categories=("all",),
            selectable_fields={"spec.clusterIP": "", "spec.type": ""},
            validate_name=dns_1035_label_problem,
            returns_deleted_object=True,
        ),
        _row(
            resources.CUSTOM_RESOURCE_DEFINITIONS,
            "crd",
            "crds",
            columns=printer_columns.CREATED_AT,
            strategy=CRD_STRATEGY,
            subresources=("status",),
            categories=("api-extensions",),
            counts_generation=True,
        ),
        _row(resources.CONTROLLER_REVISIONS, columns=workload_printer_columns.CONTROLLER_REVISION),
        _row(
            resources.DAEMON_SETS,
            "ds",
            columns=workload_printer_columns.DAEMON_SET,
            strategy=workload_strategies.DAEMON_SET,
            subresources=("status",),
            categories=("all",),
            counts_generation=True,
        ),
        _row(
            resources.DEPLOYMENTS,
            "deploy",
            columns=workload_printer_columns.DEPLOYMENT,
            strategy=workload_strategies.DEPLOYMENT,
            subresources=("status", "scale"),
            categories=("all",),
            counts_generation=True,
            scale=_REPLICAS,
        ),
        _row(
            resources.REPLICA_SETS,
            "rs",
            columns=workload_printer_columns.REPLICA_SET,
            strategy=workload_strategies.REPLICA_SET,
            subresources=("status", "scale"),
            categories=("all",),
            selectable_fields={"status.replicas": "0"},
            counts_generation=True,
            scale=_REPLICAS,
        ),
        _row(
            resources.STATEFUL_SETS,
            "sts",
            columns=workload_printer_columns.STATEFUL_SET,
            strategy=workload_strategies.STATEFUL_SET,
            subresources=("status", "scale"),
            categories=("all",),
            counts_generation=True,
            scale=_REPLICAS,
        ),
        _row(
            resources.BATCH_JOBS,
            columns=workload_printer_columns.JOB,
            strategy=job_strategy.JOB,
            subresources=("status",),
            categories=("all",),
            selectable_fields={"status.successful": "0"},
            counts_generation=True,
            default_propagation="Orphan",  # for old clients, as the real server does
        ),
        _refused_row(
            resources.CRON_JOBS,
            "cj",
            instead="has no schedules: write a Job, and `trainwright run` it from cron or a systemd timer",
        ),
        _refused_row(
            resources.INGRESSES, "ing", instead="has none: use the Service's address or `kubectl port-forward`"
        ),
        _refused_row(resources.REPLICATION_CONTROLLERS, "rc", instead="has none: write a Deployment"),
        # After apps, so that `kubectl get deployments` means those.
        _row(
            resources.LEGACY_DEPLOYMENTS,
            columns=workload_printer_columns.DEPLOYMENT,
            strategy=workload_strategies.LEGACY_DEPLOYMENT,
            subresources=("status", "scale"),
            counts_generation=True,
            scale=_REPLICAS,
            stored_as=resources.DEPLOYMENTS,
            warning=_LEGACY_DEPLOYMENT,
        ),
        _row(
            resources.CERTIFICATE_SIGNING_REQUESTS,
            "csr",
            columns=printer_columns.CERTIFICATE_SIGNING_REQUEST,
            strategy=CERTIFICATE_SIGNING_REQUEST,
            subresources=("approval", "status"),
            selectable_fields={"spec.signerName": ""},
            returns_deleted_object=True,
        ),
        _row(resources.LEASES, columns=printer_columns.LEASE),
        _row(
            resources.ENDPOINT_SLICES,
            columns=printer_columns.ENDPOINT_SLICE,
            strategy=endpoint_strategies.ENDPOINT_SLICE,
            counts_generation=True,
        ),
        _row(
            resources.CLUSTER_ROLE_BINDINGS,
            columns=printer_columns.ROLE_BINDING,
            strategy=rbac_strategies.CLUSTER_ROLE_BINDING,
            validate_name=path_segment_problem,
        ),
        _row(
            resources.CLUSTER_ROLES,
            columns=printer_columns.CREATED_AT,
            strategy=rbac_strategies.CLUSTER_ROLE,
            validate_name=path_segment_problem,
        ),
        _row(
            resources.ROLE_BINDINGS,
            columns=printer_columns.ROLE_BINDING,
            strategy=rbac_strategies.ROLE_BINDING,
            validate_name=path_segment_problem,
        ),
        _row(
            resources.ROLES,
            columns=printer_columns.CREATED_AT,
            strategy=rbac_strategies.ROLE,
            validate_name=path_segment_problem,
        ),
        _row(
            resources.PRIORITY_CLASSES,
            "pc",
            columns=printer_columns.PRIORITY_CLASS,
            strategy=core_strategies.PRIORITY_CLASS,
            counts_generation=True,
        ),
        *(
            _row(
                resource,
                columns=printer_columns.WEBHOOK_CONFIGURATION,
                strategy=webhook_strategies.WEBHOOK_CONFIGURATION,
                categories=("api-extensions",),
                counts_generation=True,
            )
            for resource in (
                resources.MUTATING_WEBHOOK_CONFIGURATIONS,
                resources.VALIDATING_WEBHOOK_CONFIGURATIONS,
            )
        ),
        _row(
            resources.EVENT_VIEWS,
            "ev",
            columns=printer_columns.EVENT,
            selectable_fields=core_strategies.EVENT_VIEW_FIELDS,
            stored_as=resources.EVENTS,
            schema=core_strategies.event_view_schema(),
            conversion=core_strategies.EVENT_VIEW,
        ),
        _row(
            resources.STORAGE_CLASSES,
            "sc",
            columns=printer_columns.STORAGE_CLASS,
            strategy=core_strategies.STORAGE_CLASS,
        ),
    ]
