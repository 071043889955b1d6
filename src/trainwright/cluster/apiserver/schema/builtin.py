"""The field tables of Kubernetes' own kinds, read once from the file that `tools/builtin-schemas` writes."""

from functools import cache
from pathlib import Path

import msgspec

from trainwright.cluster.apiserver.schema.structural import Schema


def definition(name: str) -> Schema:
    """The schema of a named type, such as `Pod` or `ObjectMeta`."""
    return _definitions()[name]


@cache
def _definitions() -> dict[str, Schema]:
    text = Path(__file__).with_suffix(".json").read_bytes()
    definitions: dict[str, Schema] = msgspec.json.decode(text)
    # Written as string or number, kept as string.
    definitions["Quantity"] = {"type": "string", "format": "quantity"}
    # OpenAPI cannot say these two; without them a CRD's `items` could hold anything.
    definitions["JSONSchemaPropsOrArray"] = {"$ref": "JSONSchemaProps"}
    definitions["JSONSchemaPropsOrBool"] = {"format": "schema-or-boolean", "schema": {"$ref": "JSONSchemaProps"}}
    return definitions
