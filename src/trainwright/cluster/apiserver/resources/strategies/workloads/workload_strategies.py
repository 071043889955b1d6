"""Strategies of the kinds that own pods: Deployments, ReplicaSets, StatefulSets and DaemonSets, and the
checks that Jobs share with them.

`extensions/v1beta1` Deployments are stored as those of `apps/v1` and differ in their defaults alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from trainwright.cluster.apiserver.resources.resource_type import Strategy, clear_status
from trainwright.cluster.apiserver.resources.strategies.labels import label_map_errors, label_selector_errors
from trainwright.cluster.apiserver.resources.strategies.workloads.pod_strategy import default_pod_spec, pod_spec_errors
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.field_errors import FieldError, forbidden, invalid, not_supported, required
from trainwright.objects.selectors import read_label_selector

_MAX_INT32 = 2**31 - 1
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
_PERCENT = re.compile(r"[0-9]+%")
_NOT_A_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)
_NOT_NEGATIVE = "must be greater than or equal to 0"
_STRATEGY_TYPES = ("Recreate", "RollingUpdate")


def default_template(template: Object) -> None:
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def _default_replica_set(replica_set: Object) -> None:
    spec = replica_set.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    default_template(spec.setdefault("template", {}))


def _default_deployment(deployment: Object) -> None:
    _set_deployment_defaults(deployment, step="25%", history=10, deadline=600)


def _default_legacy_deployment(deployment: Object) -> None:
    """The defaults of `extensions/v1beta1`: labels and selector from the template, one pod at a time, no deadline."""
    spec = deployment.setdefault("spec", {})
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        spec.setdefault("selector", {"matchLabels": dict(labels)})
        if not deployment["metadata"].get("labels"):
            deployment["metadata"]["labels"] = dict(labels)
    _set_deployment_defaults(deployment, step=1, history=_MAX_INT32, deadline=_MAX_INT32)


def _set_deployment_defaults(deployment: Object, *, step: int | str, history: int, deadline: int) -> None:
    spec = deployment.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", step)
        rolling.setdefault("maxSurge", step)
    spec.setdefault("revisionHistoryLimit", history)
    spec.setdefault("progressDeadlineSeconds", deadline)
    default_template(spec.setdefault("template", {}))


def _count_no_replicas(obj: Object) -> None:
    obj["status"] = {"replicas": 0}  # the one count that Go always writes


def _count_annotations(new: Object, old: Object) -> None:
    """A Deployment's annotations are copied to its ReplicaSets, so a change of them is a new generation."""
    if (new["metadata"].get("annotations") or {}) != (old["metadata"].get("annotations") or {}):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def keep_labels(new: Object, old: Object) -> None:
    """A status update cannot change the labels."""
    if "labels" in old["metadata"]:
        new["metadata"]["labels"] = old["metadata"]["labels"]
    else:
        new["metadata"].pop("labels", None)


def _validate_replica_set(replica_set: Object) -> list[FieldError]:
    spec = replica_set["spec"]
    return [
        *negative_errors(spec, "spec", "replicas", "minReadySeconds"),
        *selector_errors(spec),
    ]


def _validate_deployment(deployment: Object) -> list[FieldError]:
    spec = deployment["spec"]
    found = [
        *negative_errors(spec, "spec", "replicas"),
        *selector_errors(spec),
        *_strategy_errors(spec["strategy"]),
        *negative_errors(spec, "spec", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"),
    ]
    deadline = spec["progressDeadlineSeconds"]
    if deadline <= spec.get("minReadySeconds", 0):
        found.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return found


def selector_errors(spec: Object, owner: str = "deployment", volumes: Sequence[Object] = ()) -> Iterator[FieldError]:
    """The selector, and whether it matches the template; `volumes` are those that pods have besides the template's."""
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
    else:
        yield from label_selector_errors(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid("spec.selector", selector, f"empty selector is invalid for {owner}")
    if not selector_is_valid(selector):
        yield invalid("spec.selector", selector, "invalid label selector")
        return
    template = spec["template"]
    yield from template_match_errors(selector, template)
    inner = template["spec"]
    complete = inner | {"volumes": [*(inner.get("volumes") or ()), *volumes]} if volumes else inner
    yield from template_errors(template | {"spec": complete})
    policy = template["spec"]["restartPolicy"]
    if policy != "Always":
        yield not_supported("spec.template.spec.restartPolicy", policy, ["Always"])
    if template["spec"].get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        yield forbidden("spec.template.spec.activeDeadlineSeconds", detail)


def template_match_errors(selector: Object | None, template: Object) -> Iterator[FieldError]:
    """A missing selector matches no template, an empty one all."""
    labels = template["metadata"].get("labels")
    if selector is None or not read_label_selector(selector).matches(labels or {}):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def template_errors(template: Object) -> Iterator[FieldError]:
    yield from label_map_errors(template["metadata"].get("labels") or {}, "spec.template.metadata.labels")
    for error in pod_spec_errors(template["spec"]):
        yield replace(error, path=f"spec.template.{error.path}")


def selector_is_valid(selector: Object | None) -> bool:
    return selector is None or not any(label_selector_errors(selector, ""))


def _strategy_errors(strategy: Object) -> Iterator[FieldError]:
    rolling = strategy.get("rollingUpdate")
    match strategy["type"]:
        case "Recreate":
            if rolling is not None:
                detail = "may not be specified when strategy `type` is 'Recreate'"
                yield forbidden("spec.strategy.rollingUpdate", detail)
        case "RollingUpdate":
            yield from _rolling_update_errors(rolling or {}, "spec.strategy.rollingUpdate")
        case _:
            shown = {"Type": strategy["type"], "RollingUpdate": rolling}
            yield not_supported("spec.strategy", shown, _STRATEGY_TYPES)


def _rolling_update_errors(rolling: Object, path: str) -> Iterator[FieldError]:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    yield from _share_errors(unavailable, f"{path}.maxUnavailable")
    yield from _share_errors(surge, f"{path}.maxSurge")
    if _amount(unavailable) == 0 and _amount(surge) == 0:
        yield invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
    if isinstance(unavailable, str) and _PERCENT.fullmatch(unavailable) and _amount(unavailable) > 100:
        yield invalid(f"{path}.maxUnavailable", unavailable, "must not be greater than 100%")


def _share_errors(value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield invalid(path, value, _NOT_A_PERCENTAGE)
    if isinstance(value, int) and value < 0:
        yield invalid(path, value, _NOT_NEGATIVE)


def _amount(value: Any) -> int:
    """A number, a percentage without its sign, or 0 for other text, as Go reads it."""
    if isinstance(value, int):
        return value
    return parse_decimal(value.removesuffix("%")) or 0


def negative_errors(holder: Object, path: str, *names: str) -> Iterator[FieldError]:
    for name in names:
        value = holder.get(name)
        if isinstance(value, int) and value < 0:
            yield invalid(f"{path}.{name}", value, _NOT_NEGATIVE)


def _selector_is_kept(new: Object, old: Object) -> list[FieldError]:
    return immutable_errors(new["spec"], old["spec"], "selector")


def immutable_errors(new: Object, old: Object, *names: str) -> list[FieldError]:
    return [
        invalid(f"spec.{name}", new.get(name), "field is immutable") for name in names if new.get(name) != old.get(name)
    ]


def _deployment_status_errors(new: Object, old: Object) -> list[FieldError]:
    status = new.get("status") or {}
    counts = (
        "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
        "unavailableReplicas", "terminatingReplicas", "collisionCount",
    )  # fmt: skip
    found = [
        *negative_errors(status, "status", *counts),
        *_exceeding_counts(status, "updatedReplicas", "readyReplicas", "availableReplicas"),
    ]
    collisions = status.get("collisionCount", 0)
    if collisions < (old.get("status") or {}).get("collisionCount", 0):
        found.append(invalid("status.collisionCount", collisions, "cannot be decremented"))
    return found


def _replica_set_status_errors(new: Object, _old: Object) -> list[FieldError]:
    status = new.get("status") or {}
    counts = (
        "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration",
        "terminatingReplicas",
    )  # fmt: skip
    return [
        *negative_errors(status, "status", *counts),
        *_exceeding_counts(status, "fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    ]


def _exceeding_counts(status: Object, *names: str) -> Iterator[FieldError]:
    for name in names:
        if status.get(name, 0) > status.get("replicas", 0):
            yield invalid(f"status.{name}", status[name], "cannot be greater than status.replicas")
    if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
        yield invalid("status.availableReplicas", status["availableReplicas"], "cannot be greater than readyReplicas")


REPLICA_SET = Strategy(
    set_defaults=_default_replica_set,
    prepare_for_create=_count_no_replicas,
    prepare_for_status_update=keep_labels,
    validate=_validate_replica_set,
    validate_update=_selector_is_kept,
    validate_status=_replica_set_status_errors,
)
DEPLOYMENT = Strategy(
    set_defaults=_default_deployment,
    prepare_for_create=clear_status,
    prepare_for_update=_count_annotations,
    prepare_for_status_update=keep_labels,
    validate=_validate_deployment,
    validate_update=_selector_is_kept,
    validate_status=_deployment_status_errors,
)
LEGACY_DEPLOYMENT = replace(DEPLOYMENT, set_defaults=_default_legacy_deployment)


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
    prepare_for_create=_count_no_replicas,
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
