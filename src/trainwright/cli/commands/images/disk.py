"""`trainwright image prune` and `df`: the disk space of images."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trainwright.cli.commands.images.filters import Condition, parse_filters
from trainwright.cli.commands.images.listing import describe_row
from trainwright.cli.commands.images.store import image_size, size_text, store_command
from trainwright.cli.output.formats import object_text, output_flag
from trainwright.cli.output.tables import table_lines
from trainwright.cluster.images.layers.namespace import remove_tree
from trainwright.cluster.images.store import ImageStore

_BUILD_DIRECTORIES = ("build-cache", "cache-mounts")
_IMAGE_COLUMNS = ("REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE", "SHARED SIZE", "UNIQUE SIZE", "PODS")


@click.command(name="prune")
@click.option(
    "-a", "--all", "all_images", is_flag=True, help="Remove all images that no pod uses, and the build cache."
)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@click.option(
    "--filter", "filters", multiple=True, metavar="KEY=VALUE", help="Only such images: until=24h or label=KEY."
)
@store_command
def prune_command(store: ImageStore, all_images: bool, force: bool, filters: tuple[str, ...]) -> None:
    """Remove images that have no name, or that no pod uses.

    Layers that only interrupted pulls and builds have left are removed too.
    """
    passes = parse_filters(store, filters, ("until", "label"))
    if not force:
        what = "all images that no pod uses" if all_images else "all images without a name"
        more = f", if they match {', '.join(filters)}" if filters else ", and the build cache" if all_images else ""
        click.echo(f"WARNING! This will remove {what}{more}.", err=True)
        if not click.confirm("Are you sure you want to continue?", default=False, err=True):
            raise click.Abort
    for line in _remove_images(store, passes, all_images=all_images):
        click.echo(line)
    reclaimed = _remove_build_cache(store) if all_images and not filters else 0
    before = sum(_size(path) for path in store.layers.glob("*"))
    collected = store.collect()
    reclaimed += collected.size + before - sum(_size(path) for path in store.layers.glob("*"))
    for digest in collected.digests:
        click.echo(f"deleted: {digest}")
    if collected.busy:
        click.echo("Another command uses the store: its files stay. Run this again when it has ended.", err=True)
    click.echo(f"\nTotal reclaimed space: {size_text(reclaimed)}")


def _remove_images(store: ImageStore, passes: Condition, *, all_images: bool) -> list[str]:
    used = _used(store)
    lines = []
    for image in filter(passes, store.images()):
        if image.descriptor.digest in used or (image.reference is not None and not all_images):
            continue
        if image.reference is not None:
            store.remove(image.reference)
            lines.append(f"untagged: {image.reference.familiar}")
        else:
            store.remove_image(image.id)
    return lines


def _remove_build_cache(store: ImageStore) -> int:
    size = 0
    with store.lease():
        for name in _BUILD_DIRECTORIES:
            directory = store.directory / name
            if directory.is_dir():
                size += _size(directory)
                remove_tree(directory)
    return size


@click.command(name="df")
@click.option("-v", "--verbose", is_flag=True, help="Show each image, with what it shares with others.")
@output_flag("table", "json", "yaml")
@store_command
def df_command(store: ImageStore, verbose: bool, output: str) -> None:
    """Show the disk space of images.

    Layers that images share are counted once. RECLAIMABLE is what `trainwright image prune --all` removes: images that
    no pod uses, what interrupted commands have left, and the build cache.
    """
    rows = _usage(store)
    images = _image_rows(store) if verbose else []
    if verbose:
        if output != "table":
            click.echo(object_text({"Images": images, "BuildCache": {"Size": rows[-1]["Size"]}}, output))
            return
        click.echo("Images space usage:\n")
        table = [[str(cell) for cell in row.values()] for row in images]
        for line in table_lines(_IMAGE_COLUMNS, table):
            click.echo(line)
        click.echo(f"\nBuild cache usage: {size_text(rows[-1]['Size'])}")
        return
    if output != "table":
        click.echo(object_text(rows, output))
        return
    counts = ("Type", "TotalCount", "Active")
    cells = [(*(str(row[field]) for field in counts), size_text(row["Size"]), _reclaimable_text(row)) for row in rows]
    for line in table_lines(("TYPE", "TOTAL", "ACTIVE", "SIZE", "RECLAIMABLE"), cells):
        click.echo(line)


def _usage(store: ImageStore) -> list[dict[str, Any]]:
    images = store.images()
    used = _used(store)
    active = {image.id: image for image in images if image.descriptor.digest in used}
    blobs = {f"sha256:{path.name}": path.stat().st_size for path in (store.directory / "blobs" / "sha256").glob("*")}
    kept = {digest for image in active.values() for digest in image.digests}
    layers = {f"sha256:{path.name}": _size(path) for path in store.layers.glob("*") if path.is_dir()}
    kept_layers = {diff_id for image in active.values() for diff_id in image.config.rootfs.diff_ids}
    build = [store.directory / name for name in _BUILD_DIRECTORIES if (store.directory / name).is_dir()]
    entries = sum(1 for path in build for _ in path.iterdir())
    return [
        _usage_row("Images", len({image.id for image in images}), len(active), blobs, kept),
        _usage_row("Unpacked Layers", len(layers), len(kept_layers & layers.keys()), layers, kept_layers),
        _usage_row("Build Cache", entries, 0, {str(path): _size(path) for path in build}, set()),
    ]


def _usage_row(type_: str, total: int, active: int, sizes: Mapping[str, int], kept: set[str]) -> dict[str, Any]:
    """`sizes` are by digest; what is not `kept` can be reclaimed."""
    return {
        "Type": type_,
        "TotalCount": total,
        "Active": active,
        "Size": sum(sizes.values()),
        "Reclaimable": sum(size for name, size in sizes.items() if name not in kept),
    }


def _image_rows(store: ImageStore) -> list[dict[str, Any]]:
    """Sizes as `image ls` counts them. An image has a row for each name and shares nothing with itself."""
    images = store.images()
    owners: dict[str, set[str]] = {}
    for image in images:
        for blob in image.blobs:
            owners.setdefault(blob.digest, set()).add(image.id)
    pods = [pin for pin in store.pins().values() if pin.holder]
    rows = []
    for image in sorted(images, key=lambda image: image.config.created, reverse=True):
        shared = sum(blob.size for blob in image.blobs if len(owners[blob.digest]) > 1)
        row = describe_row(image, no_trunc=False)
        names = {name: row[name] for name in ("Repository", "Tag", "ID", "CreatedSince", "Size")}
        rows.append(
            names
            | {
                "SharedSize": size_text(shared),
                "UniqueSize": size_text(image_size(image) - shared),
                "Pods": sum(image.descriptor.digest in pin.digests for pin in pods),
            }
        )
    return rows


def _reclaimable_text(row: Mapping[str, Any]) -> str:
    share = f" ({100 * row['Reclaimable'] // row['Size']}%)" if row["Size"] else ""
    return size_text(row["Reclaimable"]) + share


def _used(store: ImageStore) -> set[str]:
    """The manifests of images that pods use."""
    return {digest for pin in store.pins().values() if pin.holder for digest in pin.digests}


def _size(path: Path) -> int:
    """Bytes on the disk; files that this user cannot see are not counted."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    seen: set[tuple[int, int]] = set()
    size = 0
    for directory, _, names in os.walk(path, onerror=lambda _: None):
        for name in names:
            found = os.lstat(os.path.join(directory, name))  # noqa: PTH118 (a tree of 100,000 files)
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                size += found.st_blocks * 512
    return size
