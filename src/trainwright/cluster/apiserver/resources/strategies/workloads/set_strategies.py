"""Strategies of StatefulSets and DaemonSets."""

from collections.abc import Iterator

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.cluster.apiserver.resources.strategies.workloads.workload_strategies import (
    default_template,
    immutable_errors,
    keep_labels,
    negative_errors,
    selector_errors,
)
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.field_errors import FieldError, forbidden, invalid, not_supported

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_POLICIES = ("OrderedReady", "Parallel")
_UPDATES = ("OnDelete", "RollingUpdate")
_MUTABLE = {
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
}  # fmt: skip
_IMMUTABLE = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def _default_update(spec: Object, **rolling: int) -> None:
    update = spec.setdefault("updateStrategy", {})
    update.setdefault("type", "RollingUpdate")
    if update["type"] == "RollingUpdate":
        settings = update.setdefault("rollingUpdate", {})
        for name, value in rolling.items():
            settings.setdefault(name, value)
    spec.setdefault("revisionHistoryLimit", 10)


def _default_stateful_set(stateful_set: Object) -> None:
    spec = stateful_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for name in ("whenDeleted", "whenScaled"):
        retention.setdefault(name, "Retain")
    _default_update(spec, partition=0)
    default_template(spec.setdefault("template", {}))
    for claim in spec.get("volumeClaimTemplates") or ():
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}}
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _validate_stateful_set(stateful_set: Object) -> list[FieldError]:
    spec = stateful_set["spec"]
    claims = [(claim.get("metadata") or {}).get("name", "") for claim in spec.get("volumeClaimTemplates") or ()]
    policy, wrong = spec["podManagementPolicy"], f"must be '{_POLICIES[0]}' or '{_POLICIES[1]}'"
    return [
        *([] if policy in _POLICIES else [invalid("spec.podManagementPolicy", policy, wrong)]),
        *_update_errors(spec),
        *negative_errors(spec, "spec", "replicas", "minReadySeconds", "revisionHistoryLimit"),
        *selector_errors(spec, "statefulset", [{"name": name, "emptyDir": {}} for name in claims]),
    ]


def _update_errors(spec: Object) -> Iterator[FieldError]:
    kind = spec["updateStrategy"]["type"]
    if kind not in _UPDATES:
        yield not_supported("spec.updateStrategy", kind, _UPDATES)
    rolling = spec["updateStrategy"].get("rollingUpdate") or {}
    yield from negative_errors(rolling, "spec.updateStrategy.rollingUpdate", "partition")


def _stateful_update_errors(new: Object, old: Object) -> list[FieldError]:
    before, after = ({k: v for k, v in obj["spec"].items() if k not in _MUTABLE} for obj in (old, new))
    return [] if before == after else [forbidden("spec", _IMMUTABLE)]


STATEFUL_SET = Strategy(
    set_defaults=_default_stateful_set,
    prepare_for_create=lambda obj: obj.update(status={"replicas": 0}),
    prepare_for_status_update=keep_labels,
    validate=_validate_stateful_set,
    validate_update=_stateful_update_errors,
)


def _default_daemon_set(daemon_set: Object) -> None:
    spec = daemon_set.setdefault("spec", {})
    _default_update(spec, maxUnavailable=1, maxSurge=0)
    default_template(spec.setdefault("template", {}))


def _clear_daemon_set_status(daemon_set: Object) -> None:
    """The counts that Go always writes."""
    counts = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    daemon_set["status"] = dict.fromkeys(counts, 0)
    daemon_set["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = "1"


def _count_templates(new: Object, old: Object) -> None:
    """The annotation counts changes of the template."""
    known = (old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "0")
    changed = new["spec"]["template"] != old["spec"]["template"]
    number = parse_decimal(known)
    counted = known if number is None else str(number + changed)
    new["metadata"].setdefault("annotations", {})[_TEMPLATE_GENERATION] = counted


def _validate_daemon_set(daemon_set: Object) -> list[FieldError]:
    spec = daemon_set["spec"]
    return [
        *negative_errors(spec, "spec", "minReadySeconds", "revisionHistoryLimit"),
        *_update_errors(spec),
        *selector_errors(spec, "daemonset"),
    ]


DAEMON_SET = Strategy(
    set_defaults=_default_daemon_set,
    prepare_for_create=_clear_daemon_set_status,
    prepare_for_update=_count_templates,
    prepare_for_status_update=keep_labels,
    validate=_validate_daemon_set,
    validate_update=lambda new, old: immutable_errors(new["spec"], old["spec"], "selector"),
)
