"""What a reader of a container's output may ask for. The API server reads it from a request, the node answers it."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of `GET pods/NAME/log`; `since` is the earliest moment that is wanted."""

    follow: bool = False
    previous: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class LogUnavailable(Exception):  # noqa: N818 - an answer to the reader, not a fault
    """There is no such output; the message says why, in the kubelet's words."""
