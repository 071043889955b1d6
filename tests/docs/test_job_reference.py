"""The reference page of a job lists exactly its fields and quotes its errors and warnings."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.support.commands.console_blocks import read_steps
from tests.support.objects.jobs import JobBuilder
from trainwright.api.admission import review
from trainwright.api.crd import render_crd
from trainwright.api.kinds import PYTORCH
from trainwright.api.pruned_status import ANNOTATION
from trainwright.objects import Object

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pytorchjob.md"
NOT_LISTED = ("spec.elasticPolicy.metrics[]", "status.replicaStatuses.ROLE.labelSelector.")
"""Types of Kubernetes, which the page only names."""


def fields(schema: Object, path: str) -> Iterator[str]:
    """All fields as the page writes them: `ROLE` for the keys of a map of objects, `[]` for items of lists."""
    for name, part in (schema.get("properties") or {}).items():
        here = f"{path}.{name}"
        yield here
        if name == "template":
            continue
        yield from fields(part, here)
        yield from fields(part.get("items") or {}, f"{here}[]")
        yield from fields(part.get("additionalProperties") or {}, f"{here}.ROLE")


def test_every_field_has_a_row_and_every_row_is_a_field() -> None:
    (version,) = render_crd(PYTORCH)["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    declared = {path for part in ("spec", "status") for path in fields(root[part], part)}
    rows = re.findall(r"^\| `((?:spec|status)\.[\w.\[\]]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) == {path for path in declared if not path.startswith(NOT_LISTED)}


def test_the_example_is_admitted_without_warnings() -> None:
    (written,) = [step.command for step in read_steps(PAGE) if step.command.startswith("cat > pytorchjob.yaml")]
    manifest = yaml.safe_load("\n".join(written.splitlines()[1:-1]))
    answer = review(PYTORCH, manifest)
    assert (answer.message, answer.warnings) == ("", ())


def test_the_page_quotes_errors_and_warnings_word_for_word() -> None:
    page = PAGE.read_text()
    builder = JobBuilder().replica("Chief", 1).run_policy(managedBy="x", cleanPodPolicy="none")
    builder.replica("Master", 2).replica("master", 1).spec(elasticPolicy={"minReplicas": 3, "maxReplicas": 2})
    answer = review(PYTORCH, builder.raw())
    assert len(answer.errors) == 7
    for error in answer.errors:
        assert f"`{error}`" in page
    for warning in answer.warnings:
        assert f"`{warning}`" in page
    assert f"`{ANNOTATION}`" in page
