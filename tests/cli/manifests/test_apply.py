"""What becomes of a job that is there already, in which order objects are applied, what a job learns of its caller."""

from pathlib import Path

import pytest

from tests.support.objects.jobs import JobBuilder
from trainwright.cli.manifests.apply import (
    Action,
    annotated,
    caller_python,
    differing_fields,
    end_of,
    in_order,
    plan_job,
)
from trainwright.cli.manifests.reader import Document
from trainwright.cli.manifests.validation import Item
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, PYTHON
from trainwright.objects.resources import CONFIG_MAPS, NAMESPACES, PERSISTENT_VOLUME_CLAIMS, Resource

WANTED = JobBuilder().master().workers(2).raw()
OTHER = JobBuilder().master().workers(3).raw()


def with_condition(job: Object, kind: str, status: str = "True") -> Object:
    return {**job, "status": {"conditions": [{"type": "Created", "status": "True"}, {"type": kind, "status": status}]}}


@pytest.mark.parametrize(
    ("present", "replace", "action"),
    [
        (None, False, Action.CREATE),
        (WANTED, False, Action.FOLLOW),
        (with_condition(WANTED, "Running"), False, Action.FOLLOW),
        (with_condition(WANTED, "Failed", "False"), True, Action.FOLLOW),
        (with_condition(WANTED, "Succeeded"), False, Action.RUN_AGAIN),
        (with_condition(OTHER, "Failed"), False, Action.RUN_AGAIN),
        (with_condition(OTHER, "Running"), False, Action.REFUSE),
        (with_condition(OTHER, "Running"), True, Action.REPLACE),
        (JobBuilder().metadata(deletionTimestamp="2026-11-15T04:00:00Z").raw(), False, Action.RUN_AGAIN),
    ],
)
def test_what_is_done_about_a_job(present: Object | None, replace: bool, action: Action) -> None:
    assert plan_job(WANTED["spec"], present, replace=replace) == action


def test_a_job_ends_by_its_conditions() -> None:
    assert end_of(with_condition(WANTED, "Succeeded")) == "Succeeded"
    assert end_of(with_condition(WANTED, "Running")) is None
    assert end_of({}) is None


def test_what_others_need_is_applied_first_and_jobs_last() -> None:
    def item(resource: Resource, name: str, *, job: bool = False) -> Item:
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        document = Document("m.yaml", 1, Path("/"), obj)
        return Item(document, resource, None, JobBuilder().master().job() if job else None)

    job = JobBuilder().kind.resource
    items = [
        item(job, "job", job=True),
        item(CONFIG_MAPS, "b"),
        item(CONFIG_MAPS, "a"),
        item(PERSISTENT_VOLUME_CLAIMS, "claim"),
        item(NAMESPACES, "space"),
    ]
    assert [one.document.name for one in in_order(items)] == ["space", "claim", "b", "a", "job"]


def test_a_job_learns_the_directory_and_python_of_its_caller() -> None:
    job = annotated(WANTED, Path("/work"), asked=None, active=Path("/env/bin/python"))
    assert job["metadata"]["annotations"] == {DIRECTORY: "/work", PYTHON: "/env/bin/python"}
    assert "annotations" not in WANTED["metadata"]


def test_without_an_environment_the_cluster_chooses_the_python() -> None:
    assert PYTHON not in annotated(WANTED, Path("/work"), asked=None, active=None)["metadata"]["annotations"]


def test_the_python_asked_for_wins_over_the_manifest_which_wins_over_the_active_one() -> None:
    manifest = JobBuilder().annotation(PYTHON, "/manifest").annotation("other", "kept").raw()
    active, asked = Path("/active"), Path("/asked")
    kept = annotated(manifest, Path("/work"), asked=None, active=active)["metadata"]["annotations"]
    assert (kept[PYTHON], kept["other"]) == ("/manifest", "kept")
    assert annotated(manifest, Path("/work"), asked=asked, active=active)["metadata"]["annotations"][PYTHON] == "/asked"


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_the_active_environment_has_a_python(variable: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/bin/sh")
    assert caller_python({variable: str(tmp_path)}) == tmp_path / "bin" / "python"


def test_an_environment_that_is_gone_is_none(tmp_path: Path) -> None:
    assert caller_python({"VIRTUAL_ENV": str(tmp_path)}) is None
    assert caller_python({}) is None


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
