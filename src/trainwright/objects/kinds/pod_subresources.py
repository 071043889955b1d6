"""The options of a pod's log, exec and attach. The API server parses them, the node applies them."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of `pods/NAME/exec` and `pods/NAME/attach`; with a terminal all output is stdout."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class StreamUnavailable(Exception):  # noqa: N818 - an answer to the client, not a fault
    """The container or port cannot be reached. The message is the kubelet's."""
