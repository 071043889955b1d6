"""How users name jobs."""

import pytest

from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.references import JobReference, kind_named, read_references


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_kind_is_recognised_as_kubectl_does(kind: Kind) -> None:
    for word in (
        kind.name,
        kind.singular,
        kind.plural,
        f"{kind.plural}.kubeflow.org",
        f"{kind.plural}.v1.kubeflow.org",
    ):
        assert kind_named(word) is kind


def test_a_reference_is_a_name_or_a_kind_and_a_name() -> None:
    assert read_references(["digits"]) == [JobReference(None, "digits")]
    assert read_references(["pytorchjob/digits", "b"]) == [JobReference(PYTORCH, "digits"), JobReference(None, "b")]
    assert read_references(["pytorchjobs", "a", "b"]) == [JobReference(PYTORCH, "a"), JobReference(PYTORCH, "b")]
    assert read_references(["pytorchjob"]) == [JobReference(PYTORCH, None)]
    assert read_references([]) == []


@pytest.mark.parametrize("word", ["deployment/digits", "pytorchjob/", "/digits"])
def test_a_reference_to_no_job_names_the_kinds(word: str) -> None:
    with pytest.raises(CommandError, match="pytorchjob, tfjob"):
        read_references([word])
