"""The strategy of batch/v1 Jobs: defaults, the generated selector, validation, which fields may change."""

from collections.abc import Iterator
from typing import Any

from trainwright.cluster.apiserver.resources.resource_type import Strategy, clear_status
from trainwright.cluster.apiserver.resources.strategies.labels import label_selector_errors, qualified_name_problem
from trainwright.cluster.apiserver.resources.strategies.workloads.workload_strategies import (
    default_template,
    immutable_errors,
    negative_errors,
    selector_is_valid,
    template_errors,
    template_match_errors,
)
from trainwright.objects import Object, copied
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.field_errors import (
    ErrorType,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    shown,
    too_many,
)
from trainwright.objects.names import dns_label_problem

_MAX_INT32 = 2**31 - 1
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_COMPLETION_MODES = ("NonIndexed", "Indexed")
_REPLACEMENT_POLICIES = ("Failed", "TerminatingOrFailed")
_FAILURE_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_EXIT_CODE_OPERATORS = ("In", "NotIn")
_CONDITION_STATUSES = ("False", "True", "Unknown")
_MOST_RULES, _MOST_PATTERNS, _MOST_EXIT_CODES = 20, 20, 255
_LARGEST_PARALLELISM = 100_000
_SCHEDULING_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def _set_defaults(job: Object) -> None:
    spec = job.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32)
    template = spec.setdefault("template", {})
    default_template(template)
    labels = template["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        job["metadata"]["labels"] = labels  # the same map, so that it gets the generated labels too
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed")
    spec.setdefault("manualSelector", False)
    for rule in (policy or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")


def _generate_selector(job: Object) -> None:
    """Labels the template with the job's name and uid and selects by the uid, unless the user selects manually."""
    spec, metadata = job["spec"], job["metadata"]
    if spec["manualSelector"]:
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for key in _NAME_LABELS:
        labels.setdefault(key, metadata.get("name", ""))
    for key in _UID_LABELS:
        labels.setdefault(key, metadata["uid"])
    selected = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selected.setdefault(_UID_LABELS[1], metadata["uid"])
    if not metadata.get("labels") or metadata["labels"] is labels:
        metadata["labels"] = dict(labels)


def _validate(job: Object) -> list[FieldError]:
    spec, name = job["spec"], job["metadata"].get("name", "")
    found = [*_generated_selector_errors(job), *_spec_errors(spec)]
    selector = spec.get("selector")
    if selector is None:
        found.append(required("spec.selector"))
    else:
        found += label_selector_errors(selector, "spec.selector")
    if selector_is_valid(selector):
        found += template_match_errors(selector, spec["template"])
    if spec["completionMode"] == "Indexed" and (spec.get("completions") or 0) > 0:
        last = f"{name}-{spec['completions'] - 1}"
        if dns_label_problem(last):
            detail = f"will not able to create pod with invalid DNS label: {last}"
            found.append(invalid("metadata.name", name, detail))
    return found


def _generated_selector_errors(job: Object) -> Iterator[FieldError]:
    spec = job["spec"]
    if spec["manualSelector"] or spec.get("selector") is None:
        return
    labels = spec["template"]["metadata"].get("labels") or {}
    name, uid = job["metadata"].get("name", ""), job["metadata"]["uid"]
    path = "spec.template.metadata.labels"
    for key, wanted in zip(
        (_UID_LABELS[0], _NAME_LABELS[0], _UID_LABELS[1], _NAME_LABELS[1]), (uid, name) * 2, strict=True
    ):
        if key not in labels:
            yield FieldError(f"{path}[{key}]", ErrorType.REQUIRED, f"must be '{wanted}'")
        elif labels[key] != wanted:
            yield invalid(f"{path}[{key}]", labels, f"must be '{wanted}'")
    expected = dict.fromkeys(_NAME_LABELS, name) | dict.fromkeys(_UID_LABELS, uid)
    if selector_is_valid(spec["selector"]) and any(template_match_errors(spec["selector"], _labelled(expected))):
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _labelled(labels: Object) -> Object:
    return {"metadata": {"labels": labels}}


def _spec_errors(spec: Object) -> Iterator[FieldError]:
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    yield from negative_errors(spec, "spec", *counts, "backoffLimitPerIndex", "maxFailedIndexes")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    yield from _completion_errors(spec)
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy_errors(spec)
    replacement = spec["podReplacementPolicy"]
    supported = _REPLACEMENT_POLICIES if spec.get("podFailurePolicy") is None else ("Failed",)
    if replacement not in supported:
        yield not_supported("spec.podReplacementPolicy", replacement, supported)
    yield from template_errors(spec["template"])
    yield from _restart_policy_errors(spec)


def _completion_errors(spec: Object) -> Iterator[FieldError]:
    mode, completions, failed = spec["completionMode"], spec.get("completions"), spec.get("maxFailedIndexes")
    if mode not in _COMPLETION_MODES:
        yield not_supported("spec.completionMode", mode, _COMPLETION_MODES)
    if mode == "Indexed":
        if completions is None:
            yield required("spec.completions", "when completion mode is Indexed")
        if spec["parallelism"] > _LARGEST_PARALLELISM:
            detail = f"must be less than or equal to {_LARGEST_PARALLELISM} when completion mode is Indexed"
            yield invalid("spec.parallelism", spec["parallelism"], detail)
        if completions is not None and failed is not None and failed > completions:
            yield invalid("spec.maxFailedIndexes", failed, "must be less than or equal to completions")
    if mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(f"spec.{name}", spec[name], "requires indexed completion mode")
        if spec.get("successPolicy") is not None:
            yield invalid("spec.successPolicy", spec["successPolicy"], "requires indexed completion mode")


def _restart_policy_errors(spec: Object) -> Iterator[FieldError]:
    path, policy = "spec.template.spec.restartPolicy", spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        yield required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in {"OnFailure", "Never"}:
        yield not_supported(path, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        yield invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _failure_policy_errors(spec: Object) -> Iterator[FieldError]:
    path, rules = "spec.podFailurePolicy.rules", spec["podFailurePolicy"].get("rules") or []
    if len(rules) > _MOST_RULES:
        yield too_many(path, len(rules), _MOST_RULES)
    pod = spec["template"]["spec"]
    containers = {
        container.get("name") for group in ("containers", "initContainers") for container in pod.get(group) or ()
    }
    for index, rule in enumerate(rules):
        here = f"{path}[{index}]"
        yield from _action_errors(rule.get("action", ""), f"{here}.action", spec)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            yield from _exit_code_errors(codes, f"{here}.onExitCodes", containers)
        yield from _pattern_errors(conditions, f"{here}.onPodConditions")
        if codes is not None and conditions:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield FieldError(here, ErrorType.INVALID, detail)
        if codes is None and not conditions:
            yield FieldError(here, ErrorType.INVALID, "specifying one of OnExitCodes and OnPodConditions is required")


def _action_errors(action: str, path: str, spec: Object) -> Iterator[FieldError]:
    if not action:
        yield required(path, f"valid values: {_go_list(_FAILURE_ACTIONS)}")
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield invalid(path, action, "requires the backoffLimitPerIndex to be set")
    elif action not in _FAILURE_ACTIONS:
        yield not_supported(path, action, _FAILURE_ACTIONS)


def _exit_code_errors(codes: Object, path: str, containers: set[Any]) -> Iterator[FieldError]:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        yield required(f"{path}.operator", f"valid values: {_go_list(_EXIT_CODE_OPERATORS)}")
    elif operator not in _EXIT_CODE_OPERATORS:
        yield not_supported(f"{path}.operator", operator, _EXIT_CODE_OPERATORS)
    name = codes.get("containerName")
    if name is not None and name not in containers:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", name, detail)
    if not values:
        yield invalid(f"{path}.values", values, "at least one value is required")
    elif len(values) > _MOST_EXIT_CODES:
        yield too_many(f"{path}.values", len(values), _MOST_EXIT_CODES)
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in values[:index]:
            yield duplicate(f"{path}.values[{index}]", value)
    if values != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _pattern_errors(patterns: list[Object], path: str) -> Iterator[FieldError]:
    if len(patterns) > _MOST_PATTERNS:
        yield too_many(path, len(patterns), _MOST_PATTERNS)
    for index, pattern in enumerate(patterns):
        name, status = pattern.get("type", ""), pattern.get("status", "")
        if problem := qualified_name_problem(name):
            yield invalid(f"{path}[{index}].type", name, problem)
        if status not in _CONDITION_STATUSES:
            yield not_supported(f"{path}[{index}].status", status, _CONDITION_STATUSES)


def _go_list(values: tuple[str, ...]) -> str:
    return "[" + " ".join(map(shown, values)) + "]"


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    after, before = new["spec"], old["spec"]
    names = ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"]
    found: list[FieldError] = []
    if after["completionMode"] != "Indexed":
        names.insert(0, "completions")
    elif after.get("completions") not in {None, before.get("completions"), after["parallelism"]}:
        detail = "can only be modified in tandem with spec.parallelism"
        found.append(invalid("spec.completions", after["completions"], detail))
    found += immutable_errors(after, before, *names)
    if after["template"] != _changeable_template(new, old):
        found.append(invalid("spec.template", after["template"], "field is immutable"))
    return found


def _changeable_template(new: Object, old: Object) -> Object:
    """The old template; if the job is suspended and never started, with the new scheduling directives."""
    template: Object = old["spec"]["template"]
    if not old["spec"].get("suspend") or (old.get("status") or {}).get("startTime"):
        return template
    template, wanted = copied(template), new["spec"]["template"]
    for name in ("labels", "annotations"):
        _take(template["metadata"], wanted["metadata"], name)
    for name in _SCHEDULING_DIRECTIVES:
        _take(template["spec"], wanted["spec"], name)
    affinity = {**(template["spec"].get("affinity") or {})}
    _take(affinity, wanted["spec"].get("affinity") or {}, "nodeAffinity")
    _take(template["spec"], {"affinity": affinity} if affinity else wanted["spec"], "affinity")
    return template


def _take(holder: Object, wanted: Object, name: str) -> None:
    if name in wanted:
        holder[name] = wanted[name]
    else:
        holder.pop(name, None)


def _status_errors(new: Object, old: Object) -> list[FieldError]:
    """The transitions that would confuse clients of a job: a finished job stays finished, counters only rise."""
    after, before = new.get("status") or {}, old.get("status") or {}
    found = [*negative_errors(after, "status", "active", "succeeded", "failed", "ready", "terminating")]
    for finished, first in (("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")):
        changed = is_condition_true(after, finished) != is_condition_true(before, finished)
        if changed and is_condition_true(after, finished) and not is_condition_true(after, first):
            detail = f"cannot set {finished}=True condition without the {first}=true condition"
            found.append(FieldError("status.conditions", ErrorType.INVALID, detail))
    for kept in ("Failed", "Complete", "FailureTarget"):
        if is_condition_true(before, kept) and not is_condition_true(after, kept):
            detail = f"cannot disable the terminal {kept}=True condition"
            found.append(FieldError("status.conditions", ErrorType.INVALID, detail))
    if after.get("failed", 0) < before.get("failed", 0):
        found.append(invalid("status.failed", after.get("failed", 0), "cannot decrease the failed counter"))
    indexed = new["spec"]["completionMode"] == "Indexed"
    resizable = indexed and new["spec"].get("completions") == new["spec"].get("parallelism")
    if after.get("succeeded", 0) < before.get("succeeded", 0) and not resizable:
        found.append(invalid("status.succeeded", after.get("succeeded", 0), "cannot decrease the succeeded counter"))
    return found


JOB = Strategy(
    set_defaults=_set_defaults,
    generate=_generate_selector,
    prepare_for_create=clear_status,
    validate=_validate,
    validate_update=_validate_update,
    validate_status=_status_errors,
)
