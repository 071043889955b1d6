"""Compares our CRDs with upstream's field by field: all differences are listed here with their reasons."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.kubernetes.go_operator import go_operator_files
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS, Kind
from trainwright.api.schema import structural_schema
from trainwright.objects import Object

ONLY_OURS = {
    "spec.cleanPodPolicy": "the first operators' spelling",
    "spec.ttlSecondsAfterFinished": "the first operators' spelling",
    "spec.activeDeadlineSeconds": "the first operators' spelling",
    "spec.backoffLimit": "the first operators' spelling",
    "status.restarts": "the operator keeps its state in the API",
    "status.restarts{}": "the operator keeps its state in the API",
    "status.replacedPods": "the operator keeps its state in the API",
    "status.replacedPods[]": "the operator keeps its state in the API",
    "status.completedIndexes": "the operator keeps its state in the API",
    "status.completedIndexes{}": "the operator keeps its state in the API",
    "status.failure": "why the job failed, for people",
    "status.failure.rank": "why the job failed, for people",
    "status.failure.process": "why the job failed, for people",
    "status.failure.pod": "why the job failed, for people",
    "status.failure.container": "why the job failed, for people",
    "status.failure.exitCode": "why the job failed, for people",
    "status.failure.reason": "why the job failed, for people",
    "status.failure.cause": "why the job failed, for people",
    "status.failure.advice": "why the job failed, for people",
    "status.failure.finishedAt": "why the job failed, for people",
    "status.failure.followers": "why the job failed, for people",
    "status.failure.followers[]": "why the job failed, for people",
}
"""Fields that upstream does not declare. There is none that upstream declares and we do not."""

DIFFERENT = {
    ("spec.runPolicy", "default"): "the Python SDK cannot read a job without a runPolicy",
    ("spec.runPolicy.managedBy", "x-kubernetes-validations"): "upstream's webhook is meant to reject it and does not",
    ("spec.runPolicy.cleanPodPolicy", "enum"): "an unknown value would delete all pods",
    ("spec.runPolicy.schedulingPolicy.minAvailable", "minimum"): "no scheduler accepts a negative number",
    ("spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds", "minimum"): "no scheduler accepts a negative number",
    ("spec.ReplicaSpecs", "minProperties"): "a job without roles would be ignored in silence",
    ("spec.ReplicaSpecs{}", "required"): "`kubectl scale` would add a role without pods, and the job would fail",
    ("spec.ReplicaSpecs{}.replicas", "minimum"): "upstream's schema rejects it only for Worker",
    ("spec.ReplicaSpecs{}.replicas", "maximum"): "a typo cannot stop the operator",
    ("spec.ReplicaSpecs{}.restartPolicy", "enum"): "the API server would reject every pod, again and again",
}
"""Keywords of fields that both declare; `ReplicaSpecs` stands for the kind's field of replicas. Pod templates are
compared by their own test."""

DIFFERENT_OF_KIND = {
    "TFJob": {("spec.successPolicy", "enum"): "an unknown value would have no effect"},
    "MPIJob": {
        ("spec.cleanPodPolicy", "enum"): "an unknown value would delete all pods",
        ("spec.slotsPerWorker", "minimum"): "mpirun would find no slots",
    },
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture(scope="module")
def theirs(kind: Kind) -> Object:
    text = (go_operator_files().crds / f"kubeflow.org_{kind.plural}.yaml").read_text()
    crd: Object = yaml.load(text, Loader=yaml.CSafeLoader)
    return crd


def version(crd: Object) -> Object:
    (only,) = crd["spec"]["versions"]
    found: Object = only
    return found


def fields(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Every field with the keywords of its schema; `[]` stands for items, `{}` for values of maps. A template is one
    field."""
    below = {"properties", "items", "additionalProperties", "description"}
    if path.endswith(".template"):
        yield path, {}
        return
    yield path, {key: value for key, value in schema.items() if key not in below}
    for name, part in (schema.get("properties") or {}).items():
        yield from fields(part, f"{path}.{name}" if path else name)
    for mark, key in (("[]", "items"), ("{}", "additionalProperties")):
        if isinstance(schema.get(key), dict):
            yield from fields(schema[key], path + mark)


def declared(crd: Object) -> dict[str, Object]:
    return dict(fields(version(crd)["schema"]["openAPIV3Schema"]))


def normal(value: Any) -> Any:
    """The order of required fields does not matter."""
    return sorted(value) if isinstance(value, list) and all(isinstance(one, str) for one in value) else value


def test_fields_are_upstreams_and_the_listed_ones(kind: Kind, theirs: Object) -> None:
    ours, them = declared(render_crd(kind)), declared(theirs)
    assert them.keys() - ours.keys() == set()
    own = {f"spec.{field}" for field in structural_schema(kind.fields)["properties"]}
    assert ours.keys() - them.keys() == ONLY_OURS.keys() - own
    assert len(them) > 30


def test_schema_keywords_are_upstreams_except_the_listed_ones(kind: Kind, theirs: Object) -> None:
    ours, them = declared(render_crd(kind)), declared(theirs)
    different = {
        (path.replace(kind.replicas_field, "ReplicaSpecs"), keyword)
        for path, demands in them.items()
        for keyword in demands.keys() | ours[path].keys()
        if normal(demands.get(keyword)) != normal(ours[path].get(keyword))
    }
    assert different == DIFFERENT.keys() | DIFFERENT_OF_KIND.get(kind.name, {}).keys()


def test_no_schema_keyword_of_upstream_is_missing(kind: Kind, theirs: Object) -> None:
    ours, them = declared(render_crd(kind)), declared(theirs)
    for path, demands in them.items():
        assert demands.keys() <= ours[path].keys(), path


def test_names_scope_subresources_and_columns_are_upstreams(kind: Kind, theirs: Object) -> None:
    ours = render_crd(kind)
    for field in ("group", "scope", "names"):
        assert ours["spec"][field] == theirs["spec"][field]
    assert version(ours)["subresources"] == version(theirs)["subresources"]
    shown = [column for column in version(ours)["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == version(theirs)["additionalPrinterColumns"]


def test_template_requires_no_more_than_upstreams(kind: Kind, theirs: Object) -> None:
    def template(crd: Object) -> Object:
        spec = version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"]
        found: Object = spec["properties"][kind.replicas_field]["additionalProperties"]["properties"]["template"]
        return found

    ours, them = dict(fields(template(render_crd(kind)))), dict(fields(template(theirs)))
    for path, demands in ours.items():
        closed = {key: value for key, value in demands.items() if key != "x-kubernetes-preserve-unknown-fields"}
        for keyword, value in closed.items():
            assert normal(value) == normal(them[path].get(keyword)), (path, keyword)
