"""`trainwright image ls`, `history` and `inspect`, with what Docker's users write most after `--format`."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec

from trainwright.cli.commands.images.filters import matches_name, parse_filters
from trainwright.cli.commands.images.store import (
    complete_images,
    created_text,
    find_image,
    image_size,
    size_text,
    store_command,
)
from trainwright.cli.errors import CONTROL, CommandError
from trainwright.cli.output.formats import object_text, output_flag
from trainwright.cli.output.tables import table_lines
from trainwright.cluster.images.formats import SKIPPED_LABEL, History
from trainwright.cluster.images.store import Image, ImageStore

_NONE = "<none>"
_LONGEST_INSTRUCTION = 45
_HEADS = {
    "Repository": "REPOSITORY",
    "Tag": "TAG",
    "Digest": "DIGEST",
    "ID": "IMAGE ID",
    "CreatedAt": "CREATED AT",
    "CreatedSince": "CREATED",
    "CreatedBy": "CREATED BY",
    "Size": "SIZE",
    "Comment": "COMMENT",
}


@click.command(name="ls")
@click.argument("name", required=False, metavar="[REPOSITORY[:TAG]]", shell_complete=complete_images)
@click.option("-a", "--all", "all_images", is_flag=True, hidden=True)
@click.option("-q", "--quiet", is_flag=True, help="Only print IDs.")
@click.option("--no-trunc", is_flag=True, help="Do not shorten IDs.")
@click.option("--digests", is_flag=True, help="Show the digests by which registries know the images.")
@click.option(
    "-f",
    "--filter",
    "filters",
    multiple=True,
    metavar="KEY=VALUE",
    help="dangling=true, reference=PATTERN, label=KEY, before=IMAGE or since=IMAGE.",
)
@click.option(
    "--format",
    "template",
    metavar="TEMPLATE",
    help="json, or a template such as '{{.Repository}}:{{.Tag}}' or 'table {{.ID}}\\t{{.Size}}'.",
)
@output_flag("table", "json", "yaml")
@store_command
def ls_command(
    store: ImageStore,
    name: str | None,
    all_images: bool,
    quiet: bool,
    no_trunc: bool,
    digests: bool,
    filters: tuple[str, ...],
    template: str | None,
    output: str,
) -> None:
    """List images.

    SIZE counts layers that were built here as they are, and those that were pulled as the registry has them,
    compressed; layers that images share are counted for each. An image that has lost its name to a newer one is listed
    as <none>.
    """
    _ = all_images  # Docker's flag; here no steps of builds are images
    passes = parse_filters(store, filters, ("dangling", "reference", "label", "before", "since"))
    images, damaged = store.images_and_damage()
    for sentence in damaged:
        click.echo(f"Warning: {sentence}; remove it with `trainwright image rm`, then pull or load it again", err=True)
    shown = [image for image in images if (name is None or matches_name(image, name)) and passes(image)]
    # Docker's order.
    shown.sort(key=lambda image: image.config.created, reverse=True)
    rows = [describe_row(image, no_trunc=no_trunc) for image in shown]
    if quiet:
        _print_lines(dict.fromkeys(str(row["ID"]) for row in rows))
    else:
        fields = ["Repository", "Tag", *(["Digest"] if digests else []), "ID", "CreatedSince", "Size"]
        _print_rows(rows, {field: _HEADS[field] for field in fields}, template, output)


@click.command(name="history")
@click.argument("name", metavar="IMAGE", shell_complete=complete_images)
@click.option("-q", "--quiet", is_flag=True, help="Only print IDs.")
@click.option("--no-trunc", is_flag=True, help="Do not shorten anything.")
@click.option("--format", "template", metavar="TEMPLATE", help="json, or a template such as '{{.CreatedBy}}'.")
@click.option("-H", "--human", is_flag=True, default=True, hidden=True)
@output_flag("table", "json", "yaml")
@store_command
def history_command(
    store: ImageStore, name: str, quiet: bool, no_trunc: bool, template: str | None, human: bool, output: str
) -> None:
    """Show the layers of an image and what made them, the latest first."""
    _ = human  # Docker's flag, which is its default
    image = find_image(store, name)
    rows = _history(image, no_trunc=no_trunc)
    if quiet:
        _print_lines(str(row["ID"]) for row in rows)
    else:
        fields = ("ID", "CreatedSince", "CreatedBy", "Size", "Comment")
        _print_rows(rows, {field: _HEADS[field] for field in fields} | {"ID": "IMAGE"}, template, output)


def _print_rows(
    rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], template: str | None, output: str
) -> None:
    """`columns` are the fields of a table, with their heads."""
    if template:
        _print_lines(_formatted(template, rows))
    elif output != "table":
        click.echo(object_text(rows, output))
    else:
        _print_lines(table_lines(list(columns.values()), [[str(row[field]) for field in columns] for row in rows]))


def _formatted(template: str, rows: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """A line for each row; after `table` tabs separate columns, and a head comes first."""
    columns = template.removeprefix("table ")
    if columns == template:
        return [render(template, row) for row in rows]
    head, *cells = (render(columns, row).split("\t") for row in (_HEADS, *rows))
    return table_lines(head, cells)


def describe_row(image: Image, *, no_trunc: bool) -> dict[str, Any]:
    reference = image.reference
    return {
        "Repository": reference.familiar_name if reference else _NONE,
        "Tag": (reference.tag if reference else None) or _NONE,
        "Digest": image.repo_digest or _NONE,
        "ID": image.id if no_trunc else image.short_id,
        "CreatedAt": image.config.created,
        "CreatedSince": created_text(image.config.created),
        "Size": size_text(image_size(image)),
    }


def _history(image: Image, *, no_trunc: bool) -> list[dict[str, Any]]:
    """The lines of the history. If it is not complete, the layers that it does not mention come last."""
    layers = list(reversed(image.manifest.layers))
    steps = list(reversed(image.config.history))
    missing = len(layers) - sum(not step.empty_layer for step in steps)
    steps += [History()] * max(missing, 0)
    rows = []
    for number, step in enumerate(steps):
        size = 0 if step.empty_layer or not layers else layers.pop(0).size
        instruction = " ".join(step.created_by.split())
        if not no_trunc and len(instruction) > _LONGEST_INSTRUCTION:
            instruction = instruction[: _LONGEST_INSTRUCTION - 1] + "…"
        shown_id = image.id if no_trunc else image.short_id
        rows.append(
            {
                "ID": "<missing>" if number else shown_id,
                "CreatedAt": step.created,
                "CreatedSince": created_text(step.created),
                "CreatedBy": instruction,
                "Size": size_text(size),
                "Comment": step.comment,
            }
        )
    return rows


def _print_lines(lines: Any) -> None:
    for line in lines:
        click.echo(line)


# Templates

_ACTION = re.compile(r"\{\{-?\s*(?P<content>.*?)\s*-?\}\}")
_FIELD = re.compile(r"(?P<json>json\s+)?\.(?P<path>\w+(?:\.\w+)*)?")


def render(template: str, value: Mapping[str, Any]) -> str:
    if template == "json":
        template = "{{json .}}"

    def replace(match: re.Match[str]) -> str:
        action = _FIELD.fullmatch(match["content"])
        if action is None:
            raise CommandError(
                f"--format {match[0]} is not supported: write {{{{.Field}}}} or {{{{json .Field}}}}, or use -o json"
            )
        found = _lookup(value, action["path"] or "")
        return json.dumps(found, ensure_ascii=False) if action["json"] else _text(found)

    return _ACTION.sub(replace, template.replace("\\t", "\t").replace("\\n", "\n"))


def _lookup(value: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        if not isinstance(value, Mapping) or name not in value:
            known = f": it has {', '.join(value)}" if isinstance(value, Mapping) else ""
            raise CommandError(f"--format has no field {name!r}{known}")
        value = value[name]
    return value


def _text(value: Any) -> str:
    """As Go prints values."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{name}:{_text(item)}' for name, item in sorted(value.items()))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_text, value))}]"
    return "<no value>" if value is None else str(value)


# inspect

_EMPTY = {"Author": "", "Variant": "", "HostFiles": False, "SkippedRun": []}
_EMPTY_CONFIG = {
    "User": "",
    "ExposedPorts": {},
    "Env": [],
    "Entrypoint": [],
    "Cmd": [],
    "Volumes": {},
    "WorkingDir": "",
    "Labels": {},
    "StopSignal": "",
}


@click.command(name="inspect")
@click.argument("names", nargs=-1, required=True, metavar="IMAGE…", shell_complete=complete_images)
@click.option(
    "-f",
    "--format",
    "template",
    metavar="TEMPLATE",
    help="json, or a template such as '{{.Id}}' or '{{json .Config}}'.",
)
@output_flag("json", "yaml")
@store_command
def inspect_command(store: ImageStore, names: tuple[str, ...], template: str | None, output: str) -> None:
    """Show all that is known about images.

    HostFiles says that an image lies above the files of this machine, SkippedRun which lines its build has skipped.
    """
    found, missing = [], []
    for name in names:
        try:
            found.append(find_image(store, name))
        except CommandError as error:
            missing.append(error.message)
    images = store.images()
    documents = [describe(image, [other for other in images if other.id == image.id]) for image in found]
    if template:
        for document in documents:
            click.echo(CONTROL.sub("", render(template, _with_all_fields(document))))
    elif documents:
        click.echo(object_text(documents, output))
    if missing:
        raise CommandError("\n".join(missing))


def _with_all_fields(document: dict[str, Any]) -> dict[str, Any]:
    """A template may name a field that this image does not have, as in Docker."""
    absent = {name: value for name, value in _EMPTY.items() if name not in document}
    return {**document, **absent, "Config": {**_EMPTY_CONFIG, **document["Config"]}}


def describe(image: Image, names: list[Image]) -> dict[str, Any]:
    """`names` are all images of the same ID."""
    config = msgspec.json.decode(image.config.encode())
    references = [name.reference for name in names if name.reference]
    digests = [name.reference.with_digest(name.repo_digest) for name in names if name.reference and name.repo_digest]
    document: dict[str, Any] = {
        "Id": image.id,
        "RepoTags": [reference.familiar for reference in references if reference.tag and not reference.digest],
        "RepoDigests": list(dict.fromkeys(digest.familiar for digest in digests)),
        "Created": image.config.created,
        "Author": image.config.author,
        "Architecture": image.config.architecture,
        "Variant": image.config.variant,
        "Os": image.config.os,
        "Size": image_size(image),
        "Digest": image.descriptor.digest,
        "Config": config.get("config", {}),
        "RootFS": {"Type": "layers", "Layers": image.config.rootfs.diff_ids},
        "Layers": [
            {"MediaType": layer.media_type, "Digest": layer.digest, "Size": layer.size}
            for layer in image.manifest.layers
        ],
    }
    if image.config.uses_host_files:
        document["HostFiles"] = True
    if SKIPPED_LABEL in image.config.config.labels:
        document["SkippedRun"] = _skipped(image.config.config.labels[SKIPPED_LABEL])
    return {name: value for name, value in document.items() if value != ""}


def _skipped(label: str) -> Any:
    try:
        return json.loads(label)
    except ValueError:
        return [label]
