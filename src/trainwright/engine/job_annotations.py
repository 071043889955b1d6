"""Annotations of a job that override the operator's flags."""

from collections.abc import Iterator

from trainwright.api.annotations import DEAD_NODE_SECONDS, RESTART_SCOPE
from trainwright.api.job import Job
from trainwright.engine.settings import Settings

_SCOPES = {"group": True, "pod": False}
_MAX_DIGITS = 9
"""Thirty years. A larger number is a typo, and adding it to a time might overflow."""


def restarts_as_group(job: Job, settings: Settings) -> bool:
    return _SCOPES.get(job.metadata.annotations.get(RESTART_SCOPE, ""), settings.group_restart)


def dead_node_seconds(job: Job, settings: Settings) -> int | None:
    """None: pods on dead nodes are not replaced."""
    value = job.metadata.annotations.get(DEAD_NODE_SECONDS, "")
    if value == "off":
        return None
    return int(value) if _is_number(value) else settings.dead_node_seconds


def mistakes(job: Job) -> Iterator[str]:
    """Messages about invalid values; each lists the valid values. The operator's flag applies instead."""
    annotations = job.metadata.annotations
    scope, seconds = annotations.get(RESTART_SCOPE), annotations.get(DEAD_NODE_SECONDS)
    if scope is not None and scope not in _SCOPES:
        yield f'Annotation {RESTART_SCOPE}: "{scope}" has no effect, use `group` or `pod`'
    if seconds is not None and seconds != "off" and not _is_number(seconds):
        allowed = f"a number of seconds from 1, with at most {_MAX_DIGITS} digits, or `off`"
        yield f'Annotation {DEAD_NODE_SECONDS}: "{seconds}" has no effect, use {allowed}'


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS and int(text) > 0
