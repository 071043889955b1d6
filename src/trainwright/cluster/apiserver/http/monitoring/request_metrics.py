"""The metrics of the API server under the real server's names, as Prometheus' text."""

import os
import resource
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.cluster.apiserver.access.request_info import RequestInfo
from trainwright.cluster.apiserver.http.requests import ResourceInfo
from trainwright.cluster.process_identity import stat_fields

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)  # fmt: skip
_LONG_RUNNING = {"WATCH", "CONNECT"}
_VERBS_OF_MANY = {"list", "watch", "deletecollection"}
_READ_ONLY = {"GET", "LIST", "HEAD"}
_PATHS = {
    "/api", "/apis", "/healthz", "/livez", "/readyz", "/version", "/metrics", "/openapi/v2", "/openapi/v3",
}  # fmt: skip
_REQUEST_TOTAL = (
    "[STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, "
    "component, and HTTP response code."
)
_DURATION = (
    "[STABLE] Response latency distribution in seconds for each verb, dry run value, group, version, resource, "
    "subresource, scope and component."
)
_IN_FLIGHT = (
    "[STABLE] Maximal number of currently used inflight request limit of this apiserver per request kind "
    "in last second."
)
_OBJECTS = "[STABLE] Number of stored objects at the time of last check split by kind."


@dataclass(frozen=True, slots=True)
class RequestLabels:
    """What a request is counted under. The values are of a bounded number: clients choose neither names nor paths."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    scope: str = ""
    dry_run: str = ""

    @property
    def is_long_running(self) -> bool:
        return self.verb in _LONG_RUNNING

    def text(self) -> str:
        values = {
            "component": "apiserver",
            "dry_run": self.dry_run,
            "group": self.group,
            "resource": self.resource,
            "scope": self.scope,
            "subresource": self.subresource,
            "verb": self.verb,
            "version": self.version,
        }
        return ",".join(f'{key}="{value}"' for key, value in values.items())


def request_labels(info: RequestInfo, resource: ResourceInfo | None, query: Mapping[str, str]) -> RequestLabels:
    """`resource` is what is served at the path."""
    if resource is None:
        verb = info.method if info.method in {"GET", "HEAD", "POST"} else "other"
        return RequestLabels(verb, subresource=info.path if info.path in _PATHS else "")
    kind = resource.kind.resource
    single = resource.name or info.verb == "create"
    scope = "resource" if single else "cluster" if resource.namespace is None else "namespace"
    dry_run = "All" if query.get("dryRun") == "All" else ""
    return RequestLabels(_verb(info), kind.group, kind.version, kind.plural, resource.subresource, scope, dry_run)


def _verb(info: RequestInfo) -> str:
    if info.opens_pod_session:
        return "CONNECT"
    if info.verb in _VERBS_OF_MANY:
        return info.verb.upper()
    return info.method if info.method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} else "other"


@dataclass(slots=True)
class _Durations:
    total: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS) + 1))


class RequestMetrics:
    """Counts requests. Counting is cheap; the text is written when a client asks for it."""

    def __init__(self) -> None:
        self._totals: dict[tuple[RequestLabels, int], int] = {}
        self._durations: dict[RequestLabels, _Durations] = {}
        self._in_flight = {"mutating": 0, "readOnly": 0}

    def begin(self, labels: RequestLabels) -> None:
        self._count_in_flight(labels, 1)

    def end(self, labels: RequestLabels, code: int, seconds: float) -> None:
        self._count_in_flight(labels, -1)
        key = labels, code
        self._totals[key] = self._totals.get(key, 0) + 1
        if not labels.is_long_running:
            durations = self._durations.setdefault(labels, _Durations())
            durations.total += seconds
            durations.counts[bisect_left(_BUCKETS, seconds)] += 1

    def _count_in_flight(self, labels: RequestLabels, change: int) -> None:
        if not labels.is_long_running:
            self._in_flight["readOnly" if labels.verb in _READ_ONLY else "mutating"] += change

    def text(self, stored_objects: Iterable[tuple[str, int]]) -> bytes:
        """`stored_objects`: how many objects of each resource there are."""
        lines = [
            *_family("apiserver_request_total", "counter", _REQUEST_TOTAL, self._request_totals()),
            *_family("apiserver_request_duration_seconds", "histogram", _DURATION, self._request_durations()),
            *_family("apiserver_current_inflight_requests", "gauge", _IN_FLIGHT, self._current_requests()),
            *_family("apiserver_storage_objects", "gauge", _OBJECTS, _stored(stored_objects)),
            *_process_metrics(),
        ]
        return "".join(f"{line}\n" for line in lines).encode()

    def _request_totals(self) -> Iterator[str]:
        for (labels, code), count in self._totals.items():
            yield f'apiserver_request_total{{code="{code}",{labels.text()}}} {count}'

    def _request_durations(self) -> Iterator[str]:
        name = "apiserver_request_duration_seconds"
        for labels, durations in self._durations.items():
            text, seen = labels.text(), 0
            for bound, count in zip((*map(_number, _BUCKETS), "+Inf"), durations.counts, strict=True):
                seen += count
                yield f'{name}_bucket{{{text},le="{bound}"}} {seen}'
            yield f"{name}_sum{{{text}}} {durations.total}"
            yield f"{name}_count{{{text}}} {seen}"

    def _current_requests(self) -> Iterator[str]:
        for kind, count in self._in_flight.items():
            yield f'apiserver_current_inflight_requests{{request_kind="{kind}"}} {count}'


def _family(name: str, kind: str, description: str, samples: Iterable[str]) -> Iterator[str]:
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"
    yield from samples


def _stored(objects: Iterable[tuple[str, int]]) -> Iterator[str]:
    for name, count in objects:
        yield f'apiserver_storage_objects{{resource="{name}"}} {count}'


def _number(value: float) -> str:
    return f"{value:g}"


def _process_metrics() -> Iterator[str]:
    """The whole cluster is one process, so these are not those of the API server alone."""
    fields = stat_fields("self")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    started = _boot_time() + int(fields[19]) / ticks
    values = [
        ("cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", sum(os.times()[:2])),
        ("max_fds", "gauge", "Maximum number of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("open_fds", "gauge", "Number of open file descriptors.", len([*Path("/proc/self/fd").iterdir()])),
        ("resident_memory_bytes", "gauge", "Resident memory size in bytes.", int(fields[21]) * page),
        ("start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", started),
        ("virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", int(fields[20])),
    ]
    for name, kind, description, value in values:
        yield from _family(f"process_{name}", kind, description, [f"process_{name} {value}"])


def _boot_time() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
