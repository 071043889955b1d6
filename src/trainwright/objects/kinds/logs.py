"""The options of a log request. The API server parses them, the node applies them."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of `GET pods/NAME/log`. `since` is the time of the first line to return."""

    follow: bool = False
    previous: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class LogUnavailable(Exception):  # noqa: N818 - an answer to the client, not a fault
    """The log cannot be read. The message is the kubelet's."""
