"""The subresource `log` of pods: its options, and the container that it is of."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.request_info import read_flag
from trainwright.cluster.apiserver.http.requests import read_integer
from trainwright.objects import Object
from trainwright.objects.kinds.logs import LogOptions
from trainwright.objects.times import parse_time

_LONGEST_SINCE = 10**9
"""Seconds, about thirty years; datetime has no times before the year one."""


def read_log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    since = None
    if (seconds := read_integer(query, "sinceSeconds")) is not None:
        since = now - timedelta(seconds=min(seconds, _LONGEST_SINCE))
    elif text := query.get("sinceTime"):
        try:
            since = parse_time(text)
        except ValueError as error:
            raise errors.bad_request(
                f"sinceTime: {text!r} is not an RFC 3339 time such as 2026-01-02T15:04:05Z"
            ) from error
    return LogOptions(
        follow=read_flag(query, "follow"),
        previous=read_flag(query, "previous"),
        since=since,
        tail_lines=read_integer(query, "tailLines"),
        timestamps=read_flag(query, "timestamps"),
        limit_bytes=read_integer(query, "limitBytes"),
    )


def container_of(pod: Object, wanted: str) -> str:
    """The container whose log is read; a pod with several containers needs a name."""
    name = pod["metadata"]["name"]
    spec = pod["spec"]
    mains = [container["name"] for container in spec["containers"]]
    inits = [container["name"] for container in spec.get("initContainers") or ()]
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
