"""`trainwright image tag`, `rm` and `map`."""

import os
from pathlib import Path

import click

from trainwright.cli.commands.images.store import (
    complete_images,
    find_image,
    parse_name,
    report_image_errors,
    store_command,
)
from trainwright.cli.errors import CommandError
from trainwright.cli.output.tables import table_lines
from trainwright.cluster.images.blobs import DamagedImageError
from trainwright.cluster.images.mappings import ImageMapping, ImageMappings
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError
from trainwright.cluster.images.store import Image, ImageStore


@click.command(name="tag")
@click.argument("source", metavar="IMAGE", shell_complete=complete_images)
@click.argument("target", metavar="NAME[:TAG]")
@store_command
def tag_command(store: ImageStore, source: str, target: str) -> None:
    """Give an image another name. An image that had this name loses it."""
    image = find_image(store, source)
    reference = parse_name(target)
    if reference.digest:
        raise CommandError(f"{target} has a digest: an image cannot get one as its name")
    store.tag(reference, image)


@click.command(name="rm")
@click.argument("names", nargs=-1, required=True, metavar="IMAGE…", shell_complete=complete_images)
@click.option("-f", "--force", is_flag=True, help="Also remove images with several names, and those that pods use.")
@store_command
def rm_command(store: ImageStore, names: tuple[str, ...], force: bool) -> None:
    """Remove images.

    A name is removed; with its last name the image and what no other image shares. An image of a running pod is removed
    with --force; its files stay until the pod is gone.
    """
    failures = []
    for name in names:
        try:
            with report_image_errors():
                for line in _remove(store, name, force=force):
                    click.echo(line)
        except CommandError as error:
            failures.append(error.message)
    if len(failures) < len(names):
        _delete_files(store)
    if failures:
        raise CommandError("\n".join(failures))


def _delete_files(store: ImageStore) -> None:
    collected = store.collect()
    for digest in collected.digests:
        click.echo(f"Deleted: {digest}")
    if collected.busy:
        click.echo("Another command uses the store: `trainwright image prune` frees the space later.", err=True)


def _remove(store: ImageStore, name: str, *, force: bool) -> list[str]:
    try:
        image = find_image(store, name)
    except CommandError as error:
        if isinstance(error.__cause__, DamagedImageError) and _remove_damaged(store, name):
            return [f"Untagged: {name}"]
        raise
    same = [other for other in store.images() if other.id == image.id]
    is_id = not _is_name_of(name, image)
    if is_id and len([other for other in same if other.reference]) > 1 and not force:
        raise CommandError(
            f"conflict: unable to delete {image.short_id} (must be forced) - "
            "image is referenced in multiple repositories"
        )
    if (is_id or len(same) == 1) and not force:
        _refuse_used(store, image)
    if is_id or image.reference is None:
        return [f"Untagged: {reference.familiar}" for reference in store.remove_image(image.id)]
    store.remove(image.reference)
    return [f"Untagged: {image.reference.familiar}"]


def _refuse_used(store: ImageStore, image: Image) -> None:
    for name, pin in store.pins().items():
        if pin.holder and image.descriptor.digest in pin.digests:
            pod = f"pod {pin.pod or name}"
            raise CommandError(
                f"conflict: unable to remove {image.short_id} (must be forced) - {pod} is using this image"
            )


def _is_name_of(name: str, image: Image) -> bool:
    if image.reference is None:
        return False
    try:
        return ImageReference.parse(name).name == image.reference.name
    except InvalidReferenceError:
        return False


def _remove_damaged(store: ImageStore, name: str) -> bool:
    try:
        return store.remove(ImageReference.parse(name))
    except InvalidReferenceError:
        return store.remove_damaged(name)


@click.command(name="map")
@click.argument("pattern", required=False)
@click.option("--python", metavar="PATH", help="Run pods with such an image on this machine's files with this Python.")
@click.option("--image", metavar="NAME", help="Use this image in its place.")
@click.option("--remove", is_flag=True, help="Remove the mapping.")
@store_command
def map_command(store: ImageStore, pattern: str | None, python: str | None, image: str | None, remove: bool) -> None:
    """Say what image names mean on this machine; without PATTERN, list the mappings.

    \b
      trainwright image map 'registry.example.com/team/*' --python .venv/bin/python
      trainwright image map pytorch/pytorch --image my-pytorch:2

    PATTERN is the name of an image, without a tag for all tags; `*` stands for any characters. A name without `*`
    takes precedence over patterns, and a later mapping over an earlier one. It holds for pods that start afterwards.
    """
    mappings = ImageMappings(store.directory)
    if pattern is None:
        if python or image or remove:
            raise click.UsageError("PATTERN is missing: the name of an image")
        _list(mappings.all())
    elif remove:
        if not mappings.remove(pattern):
            raise CommandError(f"{pattern!r} is not mapped: `trainwright image map` lists what is")
        click.echo(f"{pattern} is no longer mapped")
    elif bool(python) == bool(image):
        raise click.UsageError("say what it means by either --python or --image")
    elif image:
        mappings.add(ImageMapping(pattern=pattern, image=parse_name(image).familiar))
        click.echo(f"{pattern} -> image {parse_name(image).familiar}")
    else:
        path = _python_path(python or "")
        mappings.add(ImageMapping(pattern=pattern, python=path))
        click.echo(f"{pattern} -> this machine's files with Python {path}")


def _python_path(text: str) -> str:
    path = Path(text).expanduser().absolute()  # links stay: that of a virtual environment leads out of it
    if not os.access(path, os.X_OK) or path.is_dir():
        raise CommandError(f"--python {text}: not a program that can be executed")
    return str(path)


def _list(mappings: list[ImageMapping]) -> None:
    if not mappings:
        click.echo("No image names are mapped.")
        return
    rows = [[mapping.pattern, mapping.image or "<this machine's files>", mapping.python] for mapping in mappings]
    for line in table_lines(["PATTERN", "IMAGE", "PYTHON"], rows):
        click.echo(line)
