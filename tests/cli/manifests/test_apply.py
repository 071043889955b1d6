"""What `run` does with existing jobs, the order of objects, and the annotations for the embedded node."""

from pathlib import Path

import pytest

from tests.support.objects.jobs import JobBuilder
from trainwright.cli.manifests.apply import (
    Action,
    annotated_for_node,
    differing_fields,
    in_apply_order,
    plan_job,
)
from trainwright.cli.manifests.positions import Place
from trainwright.cli.manifests.reader import Document
from trainwright.cli.manifests.validation import ValidObject
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, PYTHON
from trainwright.objects.resources import CONFIG_MAPS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, Resource

WANTED = JobBuilder().master().workers(2).raw()
OTHER = JobBuilder().master().workers(3).raw()


def with_condition(job: Object, kind: str, status: str = "True") -> Object:
    return {**job, "status": {"conditions": [{"type": "Created", "status": "True"}, {"type": kind, "status": status}]}}


def with_suspend(job: Object, *, suspend: bool) -> Object:
    policy = {**(job["spec"].get("runPolicy") or {}), "suspend": suspend}
    return {**job, "spec": {**job["spec"], "runPolicy": policy}}


@pytest.mark.parametrize(
    ("present", "replace", "action"),
    [
        (None, False, Action.CREATE),
        (WANTED, False, Action.FOLLOW),
        (with_condition(WANTED, "Running"), False, Action.FOLLOW),
        (with_condition(WANTED, "Failed", "False"), True, Action.FOLLOW),
        (with_condition(WANTED, "Succeeded"), False, Action.RECREATE),
        (with_condition(OTHER, "Failed"), False, Action.RECREATE),
        (with_condition(OTHER, "Running"), False, Action.REFUSE),
        (with_condition(OTHER, "Running"), True, Action.REPLACE),
        (with_suspend(WANTED, suspend=True), False, Action.REFUSE),
        (with_suspend(WANTED, suspend=True), True, Action.REPLACE),
        (with_suspend(WANTED, suspend=False), False, Action.FOLLOW),
        (JobBuilder().metadata(deletionTimestamp="2026-11-15T04:00:00Z").raw(), False, Action.RECREATE),
    ],
)
def test_the_action_for_an_existing_job(present: Object | None, replace: bool, action: Action) -> None:
    assert plan_job(WANTED["spec"], present, replace=replace) == action


def test_a_job_that_is_to_be_suspended_is_followed_if_it_is() -> None:
    suspended = with_suspend(WANTED, suspend=True)
    assert plan_job(suspended["spec"], suspended, replace=False) == Action.FOLLOW
    assert plan_job(suspended["spec"], WANTED, replace=False) == Action.REFUSE


def test_namespaces_and_volumes_come_first_and_jobs_last() -> None:
    def item(resource: Resource, name: str, *, job: bool = False) -> ValidObject:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        document = Document(Place("m.yaml", 1), Path("/"), obj)
        return ValidObject(document, resource, None, JobBuilder().master().job() if job else None)

    job = JobBuilder().kind.resource
    items = [
        item(job, "job", job=True),
        item(CONFIG_MAPS, "b"),
        item(CONFIG_MAPS, "a"),
        item(PERSISTENT_VOLUME_CLAIMS, "claim"),
        item(NAMESPACES, "space"),
    ]
    assert [one.document.name for one in in_apply_order(items)] == ["space", "claim", "b", "a", "job"]


def annotations(job: Object, **paths: Path) -> dict[str, str]:
    document = annotated_for_node(Document(Place("m.yaml", 1), Path("/work"), job), **paths)
    found: dict[str, str] = document.object["metadata"]["annotations"]
    return found


def test_a_job_is_annotated_with_directory_and_the_callers_python() -> None:
    assert annotations(WANTED, default=Path("/env/bin/python")) == {
        DIRECTORY: "/work",
        PYTHON: "/env/bin/python",
    }
    assert "annotations" not in WANTED["metadata"]


def test_without_a_python_of_the_caller_there_is_no_python_annotation() -> None:
    assert PYTHON not in annotations(WANTED)


def test_flags_override_the_manifest_which_overrides_the_callers_surroundings() -> None:
    manifest = (
        JobBuilder().annotation(PYTHON, "/manifest").annotation(DIRECTORY, "/there").annotation("o", "kept").raw()
    )
    assert annotations(manifest, default=Path("/active")) == {
        PYTHON: "/manifest",
        DIRECTORY: "/there",
        "o": "kept",
    }
    given = annotations(manifest, default=Path("/active"), flag=Path("/flag"), workdir=Path("/flagged"))
    assert given == {PYTHON: "/flag", DIRECTORY: "/flagged", "o": "kept"}


def test_objects_that_are_no_jobs_are_not_annotated() -> None:
    claim = Document(
        Place("m.yaml", 1), Path("/"), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    )
    assert annotated_for_node(claim, default=Path("/active")) == claim


@pytest.mark.parametrize(
    ("wanted", "present", "fields"),
    [
        ({"a": 1}, {"a": 1, "added": "by the server"}, []),
        ({"a": None}, {}, []),
        (None, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ["spec.a.c"]),
        ({"list": [1]}, {"list": [1, 2]}, ["spec.list"]),
        ({"a": 1}, None, ["spec"]),
    ],
)
def test_differences_are_named_by_field(wanted: object, present: object, fields: list[str]) -> None:
    assert differing_fields(wanted, present, "spec") == fields
