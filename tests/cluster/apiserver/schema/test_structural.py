"""Compiled structural schemas."""

import pytest

from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.structural import Findings, compile_schema, unenforced_rules


@pytest.mark.parametrize(
    ("given_", "kept"), [(1, "1"), ("500m", "500m"), (1.5, "1500m"), (1024, "1Ki"), ("1e3", "1e3")]
)
def test_quantities_are_stored_as_strings(given_: object, kept: str) -> None:
    found = Findings()
    assert compile_schema({"$ref": "Quantity"}, definition)(given_, "q", found) == kept
    assert found.errors == []


def test_unenforced_rules_are_found() -> None:
    frozen = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "has(self.a)"}],
        "properties": {"a": frozen, "b": {"type": "array", "items": {"type": "object", "properties": {"c": frozen}}}},
        "additionalProperties": {"type": "string", "x-kubernetes-validations": [{"rule": "size(self) > 1"}]},
    }
    expected = {("<root>", "has(self.a)"), ("b[*]", "self == oldSelf"), ("[*]", "size(self) > 1")}
    assert set(unenforced_rules(schema)) == expected
