"""`trainwright image inspect`: everything about images, in the form of `docker image inspect`."""

import json
from typing import Any

import click
import msgspec

from trainwright.cli.commands.images.store import (
    complete_images,
    find_image,
    image_size,
    store_command,
)
from trainwright.cli.commands.images.templates import render
from trainwright.cli.errors import CONTROL, CommandError
from trainwright.cli.output.formats import object_text, output_flag
from trainwright.cluster.images.formats import SKIPPED_LABEL
from trainwright.cluster.images.store import Image, ImageStore

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
