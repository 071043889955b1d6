"""The formats of `-o`, and objects as JSON, YAML or names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from trainwright.cli.errors import CONTROL
from trainwright.objects import Object

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "yaml", "name")


def output_flag(*formats: str) -> Callable[[F], F]:
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="The output format."
    )


def without_managed_fields(obj: Object) -> Object:
    """The object as kubectl shows it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def object_text(obj: Any, output: str) -> str:
    """As JSON or YAML."""
    if output == "json":
        import json

        text = json.dumps(obj, indent=4, ensure_ascii=False)
        return CONTROL.sub(lambda code: f"\\u{ord(code[0]):04x}", text)
    import yaml

    text = str(yaml.safe_dump(obj, sort_keys=False, allow_unicode=True))
    if CONTROL.search(text):  # YAML has escapes for all other scripts or for none
        text = str(yaml.safe_dump(obj, sort_keys=False, allow_unicode=False))
    return text.rstrip("\n")


def list_of(objects: Sequence[Object]) -> Object:
    """The `List` that kubectl prints for several objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects), "metadata": {"resourceVersion": ""}}
