"""Tables as kubectl prints them, and objects as JSON, YAML or names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from trainwright.cli.console import plain_text
from trainwright.objects import Object

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "yaml", "name")
_GAP = "   "


def output_flag(*formats: str) -> Callable[[F], F]:
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], show_default=True, help="The output format."
    )


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, without blanks at the ends of lines. Cells may have texts of other programs."""
    cells = [[plain_text(cell) for cell in row] for row in rows]
    widths = column_widths(head, cells)
    return [row_line(row, widths) for row in (head, *cells)]


def column_widths(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(head, *rows, strict=True)]


def row_line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def without_managed_fields(obj: Object) -> Object:
    """The object as kubectl shows it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def object_text(obj: Any, output: str) -> str:
    """As JSON or YAML."""
    if output == "json":
        import json

        return json.dumps(obj, indent=4, ensure_ascii=False)
    import yaml

    return str(yaml.safe_dump(obj, sort_keys=False, allow_unicode=True)).rstrip("\n")


def list_of(objects: Sequence[Object]) -> Object:
    """The `List` that kubectl prints for several objects."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects), "metadata": {"resourceVersion": ""}}
