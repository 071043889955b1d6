"""`--filter` of `image ls` and `image prune`."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from trainwright.cli.commands.images.store import find_image
from trainwright.cli.errors import CommandError
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.objects.times import parse_time

Condition = Callable[[Image], bool]

_FORMS = {
    "dangling": "dangling=true",
    "reference": "reference=PATTERN",
    "label": "label=KEY[=VALUE]",
    "before": "before=IMAGE",
    "since": "since=IMAGE",
    "until": "until=24h or until=2026-01-31T10:00:00Z",
}
_DURATION = re.compile(r"(\d+)(s|m|h|d)")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_OLDEST = datetime.min.replace(tzinfo=UTC)


def parse_filters(store: ImageStore, texts: Sequence[str], keys: Sequence[str]) -> Condition:
    """True for the images that pass all of them; `keys` are those that the command has."""
    conditions = [_condition(store, text, keys) for text in texts]
    return lambda image: all(condition(image) for condition in conditions)


def _condition(store: ImageStore, text: str, keys: Sequence[str]) -> Condition:
    key, _, value = text.partition("=")
    if key not in keys:
        raise CommandError(f"unknown filter {key!r}: write {', '.join(_FORMS[known] for known in keys)}")
    match key:
        case "dangling":
            return lambda image: (image.reference is None) == (value.lower() in {"true", "1"})
        case "reference":
            return lambda image: matches_name(image, value)
        case "label":
            label, has_value, wanted = value.partition("=")
            return lambda image: _has_label(image, label, wanted if has_value else None)
        case "before":
            limit = _created(find_image(store, value))
            return lambda image: _created(image) < limit
        case "since":
            limit = _created(find_image(store, value))
            return lambda image: _created(image) > limit
    limit = _time(value)
    return lambda image: _created(image) < limit


def matches_name(image: Image, name: str) -> bool:
    """`name` is `REPOSITORY[:TAG]`, with patterns."""
    if image.reference is None:
        return False
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, ""
    names = (image.reference.familiar_name, image.reference.name)
    return any(fnmatchcase(found, repository) for found in names) and (
        not tag or fnmatchcase(image.reference.tag or "", tag)
    )


def _has_label(image: Image, label: str, value: str | None) -> bool:
    labels = image.config.config.labels
    return label in labels and value in (None, labels[label])


def _created(image: Image) -> datetime:
    try:
        return parse_time(image.config.created)
    except ValueError:
        return _OLDEST


def _time(text: str) -> datetime:
    parts = _DURATION.findall(text)
    try:
        if parts and "".join(number + unit for number, unit in parts) == text:
            age = sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())
            return datetime.now(UTC) - age
        return parse_time(text)
    except (ValueError, OverflowError) as error:
        raise CommandError(f"invalid filter until={text}: write {_FORMS['until']}") from error
