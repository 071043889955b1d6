"""What one job asks for by annotation, in place of what the operator's flags say for all jobs."""

from collections.abc import Iterator

from trainwright.api.job import Job
from trainwright.engine.settings import Settings

RESTART_SCOPE = "trainwright.dev/restart-scope"
"""On jobs: whether a failed pod is replaced alone (`pod`) or with all others of the job (`group`)."""

DEAD_NODE_SECONDS = "trainwright.dev/dead-node-seconds"
"""On jobs: for how long a node may be gone before its pods are replaced, in seconds, or `off`."""

_SCOPES = {"group": True, "pod": False}
_MOST_DIGITS = 9
"""Thirty years; more is a slip of the keyboard, and might not fit into a date."""


def restarts_as_group(job: Job, settings: Settings) -> bool:
    return _SCOPES.get(job.metadata.annotations.get(RESTART_SCOPE, ""), settings.group_restart)


def dead_node_seconds(job: Job, settings: Settings) -> int | None:
    """None: pods on dead nodes are left alone."""
    wish = job.metadata.annotations.get(DEAD_NODE_SECONDS, "")
    if wish == "off":
        return None
    return int(wish) if _is_number(wish) else settings.dead_node_seconds


def mistakes(job: Job) -> Iterator[str]:
    """Values that mean nothing, each with what to write; the operator's flag is in force instead."""
    annotations = job.metadata.annotations
    scope, seconds = annotations.get(RESTART_SCOPE), annotations.get(DEAD_NODE_SECONDS)
    if scope is not None and scope not in _SCOPES:
        yield f'Annotation {RESTART_SCOPE}: "{scope}" has no effect, write `group` or `pod`'
    if seconds is not None and seconds != "off" and not _is_number(seconds):
        allowed = f"a number of seconds from 1, of {_MOST_DIGITS} digits at most, or `off`"
        yield f'Annotation {DEAD_NODE_SECONDS}: "{seconds}" has no effect, write {allowed}'


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) > 0
