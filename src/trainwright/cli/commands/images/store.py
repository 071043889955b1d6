"""What the commands about images share: the store, finding an image, errors, and Docker's way to write values."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.flags import data_dir_flag
from trainwright.cli.targets import data_dir_at
from trainwright.cluster.images.archives import ArchiveError
from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.formats import FormatError
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError
from trainwright.cluster.images.registry.credentials import CredentialsError
from trainwright.cluster.images.registry.errors import RegistryError
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.objects.times import parse_time

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_STEPS = (
    (timedelta(seconds=1), "Less than a second"),
    (timedelta(seconds=2), "1 second"),
    (timedelta(minutes=1), "{seconds} seconds"),
    (timedelta(minutes=2), "About a minute"),
    (timedelta(hours=1), "{minutes} minutes"),
    (timedelta(hours=2), "About an hour"),
    (timedelta(days=2), "{hours} hours"),
    (timedelta(days=14), "{days} days"),
    (timedelta(days=60), "{weeks} weeks"),
    (timedelta(days=730), "{months} months"),
    (timedelta.max, "{years} years"),
)


def store_command(command: F) -> Callable[..., Any]:
    """Adds the flags that select a store, passes the store as the first argument, and reports errors of images."""

    @functools.wraps(command)
    def with_store(*args: Any, data_dir: Path | None, **values: Any) -> Any:
        store = open_store(data_dir)
        with report_image_errors():
            return command(store, *args, **values)

    return data_dir_flag(with_store)


def open_store(data_dir: Path | None) -> ImageStore:
    return ImageStore.of(data_dir_at(data_dir))


@contextmanager
def report_image_errors() -> Iterator[None]:
    """Turns the errors of images into one line."""
    try:
        yield
    except ExceptionGroup as group:
        raise CommandError(str(group.exceptions[0])) from group
    except (StoreError, RegistryError, FormatError, ArchiveError, CredentialsError, InvalidReferenceError) as error:
        raise CommandError(str(error)) from error
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        raise CommandError(f"{error.filename or 'the store of images'}: {error.strerror or error}") from error


def parse_name(text: str) -> ImageReference:
    with report_image_errors():
        return ImageReference.parse(text)


def find_image(store: ImageStore, name: str) -> Image:
    with report_image_errors():
        image = store.find(name)
    if image is None:
        raise CommandError(f"no such image: {name}; `trainwright image ls` lists those that there are")
    return image


def complete_images(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of images, for shells."""
    _ = param
    try:
        images = open_store(ctx.params.get("data_dir")).images()
    except Exception:
        return []
    names = [image.reference.familiar for image in images if image.reference]
    return [name for name in names if name.startswith(incomplete)]


def size_text(size: float) -> str:
    """Three digits and a decimal unit: `13.3kB`, `195MB`."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size /= 1000
        unit += 1
    return f"{size:.3g}{_UNITS[unit]}" if size < 999.5 else f"{size:.0f}{_UNITS[unit]}"


def created_text(created: str, now: datetime | None = None) -> str:
    """`3 weeks ago`; `N/A` if the image does not say when."""
    try:
        age = (now or datetime.now(UTC)) - parse_time(created)
    except (ValueError, OverflowError):
        return "N/A"
    seconds = int(max(age, timedelta(0)).total_seconds())
    values = {
        "seconds": seconds,
        "minutes": seconds // 60,
        "hours": seconds // 3600,
        "days": seconds // 86400,
        "weeks": seconds // (7 * 86400),
        "months": seconds // (30 * 86400),
        "years": seconds // (365 * 86400),
    }
    text = next(text for limit, text in _STEPS if age < limit)
    return f"{text.format(**values)} ago"


def check_mirrors(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    if values:
        from trainwright.cluster.images.registry.settings import check_mirror  # most builds need no registry

        try:
            return tuple(map(check_mirror, values))
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error
    return values


def image_size(image: Image) -> int:
    """Bytes of the layers and documents in the store."""
    return image.descriptor.size + image.manifest.config.size + sum(layer.size for layer in image.manifest.layers)
