"""The schemas of built-in kinds, read once from the file that `tools/builtin-schemas` writes."""

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
    # Clients send strings or numbers; strings are stored.
    definitions["Quantity"] = {"type": "string", "format": "quantity"}
    # OpenAPI cannot express these two; without them a CRD's `items` could have any value.
    definitions["JSONSchemaPropsOrArray"] = {"$ref": "JSONSchemaProps"}
    definitions["JSONSchemaPropsOrBool"] = {"format": "schema-or-boolean", "schema": {"$ref": "JSONSchemaProps"}}
    # Objects of earlier versions can be read; their fields mean nothing here.
    fields = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": "ObjectMeta"}}
    for kind in ("CronJob", "Ingress", "ReplicationController"):
        definitions[kind] = {"type": "object", "properties": fields, "x-kubernetes-preserve-unknown-fields": True}
    return definitions
