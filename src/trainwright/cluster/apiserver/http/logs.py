"""How the log endpoint reads what containers wrote: a protocol that the node fulfils, and the reading of a request."""

from collections.abc import AsyncGenerator, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.requests import flag, whole_number
from trainwright.objects import Object
from trainwright.objects.logs import LogOptions
from trainwright.objects.times import parse_time

_LONGEST_SINCE = 10**9
"""Seconds. No log is older than thirty years, and times before the year one cannot be counted."""


class LogReader(Protocol):
    """Reads one container's log as chunks of text; if it cannot, the call itself raises LogUnavailable."""

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]: ...


def read_log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    since = None
    if (seconds := whole_number(query, "sinceSeconds")) is not None:
        since = now - timedelta(seconds=min(seconds, _LONGEST_SINCE))
    elif text := query.get("sinceTime"):
        try:
            since = parse_time(text)
        except ValueError as error:
            raise errors.bad_request(
                f"sinceTime: {text!r} is not an RFC 3339 time such as 2026-01-02T15:04:05Z"
            ) from error
    return LogOptions(
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        since=since,
        tail_lines=whole_number(query, "tailLines"),
        timestamps=flag(query, "timestamps"),
        limit_bytes=whole_number(query, "limitBytes"),
    )


def container_of(pod: Object, wanted: str) -> str:
    """The container to read; a pod with several needs it named."""
    name = pod["metadata"]["name"]
    spec = pod["spec"]
    mains = [one["name"] for one in spec["containers"]]
    inits = [one["name"] for one in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in mains + inits:
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(mains) > 1:
        choice = f"choose one of: [{' '.join(mains)}]" + (
            f" or one of the init containers: [{' '.join(inits)}]" if inits else ""
        )
        raise errors.bad_request(f"a container name must be specified for pod {name}, {choice}")
    return str(mains[0])
