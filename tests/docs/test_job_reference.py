"""The reference pages of jobs are up to date, list every field with its real default, and have valid examples."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.support.commands.console_blocks import read_steps
from trainwright.api.crd import render_crd
from trainwright.api.job import read_job
from trainwright.api.job_admission import review
from trainwright.api.kinds import KINDS, Kind
from trainwright.api.pruned_status import ANNOTATION
from trainwright.objects import Object
from trainwright.objects.paths import value_at

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "job_reference.py"
COMMON = ROOT / "docs" / "reference" / "jobs.md"
BLOCK = re.compile(r"<!-- made by tools/job_reference\.py: ([a-z ]+) -->\n")
NOT_LISTED = (".metrics[]", ".labelSelector.", ".template.")
"""Types of Kubernetes, which the pages only name."""
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)


def page_of(kind: Kind) -> Path:
    return COMMON.with_name(f"{kind.singular}.md")


def example_of(kind: Kind) -> Object:
    start = f"cat > {kind.singular}.yaml"
    (written,) = [step.command for step in read_steps(page_of(kind)) if step.command.startswith(start)]
    manifest: Object = yaml.safe_load("\n".join(written.splitlines()[1:-1]))
    return manifest


def fields(schema: Object, path: str) -> Iterator[str]:
    """All fields as the pages write them: `ROLE` for the keys of a map of objects, `[]` for items of lists."""
    for name, part in (schema.get("properties") or {}).items():
        here = f"{path}.{name}"
        yield here
        yield from fields(part, here)
        yield from fields(part.get("items") or {}, f"{here}[]")
        yield from fields(part.get("additionalProperties") or {}, f"{here}.ROLE")


def rows(page: Path) -> list[list[str]]:
    """The cells of every row about a field."""
    lines = [line for line in page.read_text().splitlines() if line.startswith(("| `spec.", "| `status."))]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_pages_are_generated_from_the_code() -> None:
    checked = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
    advice = "run: .venv/bin/python tools/job_reference.py"
    assert checked.returncode == 0, f"{checked.stdout}{checked.stderr}{advice}"


@every_kind
def test_the_page_of_a_kind_has_every_block(kind: Kind) -> None:
    found = BLOCK.findall(page_of(kind).read_text())
    assert {"roles", "fields", "environment", "states", "errors"} <= set(found)
    assert len(found) == len(set(found))


def test_the_page_of_all_kinds_has_every_block() -> None:
    found = BLOCK.findall(COMMON.read_text())
    assert sorted(found) == ["earlier fields", "errors", "kinds", "labels", "run policy", "status", "warnings"]
    assert f"`{ANNOTATION}`" in COMMON.read_text()


@every_kind
def test_every_field_has_a_row_and_every_row_is_a_field(kind: Kind) -> None:
    (version,) = render_crd(kind)["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    declared = {path for part in ("spec", "status") for path in fields(root[part], part)}
    own = [row[0].strip("`") for row in rows(page_of(kind))]
    common = [row[0].strip("`") for row in rows(COMMON)]
    fields_of_kind = {f"spec.{one.encode_name}" for one in msgspec.structs.fields(kind.fields)}
    listed = [*own, *(path for path in common if path not in fields_of_kind)]
    assert len(listed) == len(set(listed))
    assert set(listed) == {path for path in declared if not any(part in path for part in NOT_LISTED)}


@every_kind
def test_the_example_is_admitted_without_warnings(kind: Kind) -> None:
    answer = review(kind, example_of(kind))
    assert (answer.message, answer.warnings) == ("", ())


LITERAL = re.compile(r"`([^`]+)`")
SET_WHERE_IT_IS_USED = {
    "spec.runPolicy.managedBy": "kubeflow.org/training-operator",
    "spec.elasticPolicy.rdzvBackend": "c10d",
    "spec.elasticPolicy.standalone": "false",
    "spec.enableDynamicWorker": "false",
    "spec.elasticPolicy.maxReplicas": "minReplicas",
    "spec.slotsPerWorker": "1",
    "spec.cleanPodPolicy": "None",
}
"""Defaults that a job does not store: the code treats a missing value as this one."""


@every_kind
def test_literal_defaults_are_those_of_a_job_that_sets_nothing(kind: Kind) -> None:
    role = kind.roles[0].name
    template = {"spec": {"containers": [{"name": kind.container, "image": "x"}]}}
    spec = {kind.replicas_field: {role: {"replicas": kind.roles[0].exactly, "template": template}}}
    metadata = {"name": "x", "namespace": "default"}
    job = read_job({"apiVersion": "kubeflow.org/v1", "kind": kind.name, "metadata": metadata, "spec": spec} | {})
    replica = job.replicas[role]
    completed: Object = {
        "spec": {
            **msgspec.to_builtins(job.fields),
            "runPolicy": msgspec.to_builtins(job.run_policy),
            kind.replicas_field: {"ROLE": {"replicas": replica.count, "restartPolicy": replica.restart_policy}},
        }
    }
    documented = {
        path.strip("`"): match[1]
        for page in (COMMON, page_of(kind))
        for path, _, default, *_ in (row for row in rows(page) if len(row) == 4 and row[0].startswith("`spec"))
        if (match := LITERAL.fullmatch(default))
    }
    assert len(documented) >= 5
    for path, default in documented.items():
        value: Any = value_at(completed, *path.split("."))
        assert default == SET_WHERE_IT_IS_USED.get(path) if value is None else str(value).lower() == default.lower()
