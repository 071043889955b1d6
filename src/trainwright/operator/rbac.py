"""The RBAC rules that the operator needs, as data: for running jobs, and for each feature that needs more.

The rules for running jobs grant no more than upstream's ClusterRole, so an existing installation needs no new rules.
docs/how-to/run-the-operator.md shows all rules; startup checks name the ones that are missing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trainwright.api.kinds import Kind
from trainwright.engine.framework import ExtraResource, Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.engine.policies.gang import group_resource
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import (
    AUTOSCALERS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ROLES,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)

_CACHED = "list watch"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a ClusterRole or, with `own_namespace`, of a Role in the operator's own namespace."""

    resource: Resource
    verbs: tuple[str, ...]
    reason: str
    subresource: str = ""
    own_namespace: bool = False

    @property
    def resources(self) -> str:
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def render(self) -> Object:
        return {"apiGroups": [self.resource.group], "resources": [self.resources], "verbs": list(self.verbs)}

    def __str__(self) -> str:
        verbs = ", ".join(self.verbs)
        return f"apiGroups [{self.resource.group}], resources [{self.resources}], verbs [{verbs}]"


@dataclass(frozen=True, slots=True)
class Feature:
    """What an option of the operator, or a field of a job, needs besides the rules for running jobs."""

    name: str
    rules: tuple[Rule, ...]
    without: str
    """What happens if the rules are not granted."""
    in_upstream_role: bool = False
    """Whether upstream's ClusterRole grants the rules."""


def _rule(resource: Resource, verbs: str, reason: str, *, subresource: str = "", own_namespace: bool = False) -> Rule:
    return Rule(resource, tuple(verbs.split()), reason, subresource, own_namespace)


def job_rules(kinds: Iterable[Kind], frameworks: Mapping[str, Framework] = FRAMEWORKS) -> list[Rule]:
    """The rules for running jobs of these kinds, including the objects that their frameworks declare."""
    kinds = tuple(kinds)
    extras = {extra.resource: extra for kind in kinds for extra in frameworks[kind.framework].extra_resources}
    extras.pop(AUTOSCALERS, None)
    return [
        *(rule for kind in kinds for rule in _kind_rules(kind.resource)),
        _rule(PODS, f"get {_CACHED} create patch delete", "create, adopt and delete the pods of a job"),
        _rule(SERVICES, f"get {_CACHED} create delete", "create and delete the Services of a job"),
        _rule(EVENTS, "create patch", "record events on jobs"),
        *map(_extra_rule, extras.values()),
        # RBAC allows the operator to grant only permissions that it has itself.
        *([_rule(PODS, "create", "grant it in the Role of a job", subresource="exec")] if ROLES in extras else []),
    ]


def _kind_rules(jobs: Resource) -> Iterable[Rule]:
    yield _rule(jobs, f"get {_CACHED} patch delete", "watch jobs, annotate them, delete them after their TTL")
    yield _rule(jobs, "update", "write the status of jobs", subresource="status")
    yield _rule(jobs, "update", "own pods with blockOwnerDeletion", subresource="finalizers")


def _extra_rule(extra: ExtraResource) -> Rule:
    return _rule(extra.resource, " ".join((_CACHED, *extra.verbs)), f"manage the {extra.resource.kind} of a job")


LEADER_ELECTION = Feature(
    "`--leader-elect`",
    (_rule(LEASES, "get create update watch", "hold the Lease of the leader", own_namespace=True),),
    "the operator does not start",
)
NODE_STATUS = Feature(
    "`--dead-node-seconds`",
    (_rule(NODES, _CACHED, "detect lost nodes"),),
    "pods on lost nodes are not replaced",
)
AUTOSCALING = Feature(
    "`elasticPolicy.metrics`",
    (_rule(AUTOSCALERS, f"{_CACHED} create patch delete", "manage the HorizontalPodAutoscaler of a job"),),
    "the field has no effect, and an event on the job says so",
    in_upstream_role=True,
)
GANG_SCHEDULING = Feature(
    "`--gang-scheduler-name`",
    tuple(_extra_rule(group_resource(GangScheduler(name))) for name in ("volcano", "scheduler-plugins")),
    "the operator does not start",
    in_upstream_role=True,
)
PRIORITIES = Feature(
    "gang scheduling by priority",
    (_rule(PRIORITY_CLASSES, _CACHED, "count the replicas of the highest priority first"),),
    "`minResources` of a PodGroup is counted in the order of the job's roles",
)
WEBHOOKS = Feature(
    "admission webhooks",
    (
        _rule(SECRETS, f"{_CACHED} update", "store the certificates of the webhooks", own_namespace=True),
        _rule(
            VALIDATING_WEBHOOK_CONFIGURATIONS, f"{_CACHED} update", "write the certificate authority of the webhooks"
        ),
    ),
    "webhooks are off",
    in_upstream_role=True,
)
WEBHOOK_SECRET = Feature(
    "admission webhooks without a prepared Secret",
    (_rule(SECRETS, "create", "create the Secret of the webhooks", own_namespace=True),),
    WEBHOOKS.without,
)
FAILED_POD_LOGS = Feature(
    "`--read-failed-pod-logs`",
    (_rule(PODS, "get", "quote the cause of a failure", subresource="log"),),
    "causes of failures are exit codes alone",
)
CRD_INSTALLATION = Feature(
    "`--install-crds`",
    (_rule(CUSTOM_RESOURCE_DEFINITIONS, "get create update", "install the CRDs"),),
    "the operator does not start",
)
SERVICE_ADOPTION = Feature(
    "adopting Services of older operators",
    (_rule(SERVICES, "patch", "adopt and release Services"),),
    "a Warning event on the job",
)

FEATURES = (
    LEADER_ELECTION,
    NODE_STATUS,
    AUTOSCALING,
    GANG_SCHEDULING,
    PRIORITIES,
    WEBHOOKS,
    WEBHOOK_SECRET,
    FAILED_POD_LOGS,
    CRD_INSTALLATION,
    SERVICE_ADOPTION,
)
