"""Health checks and metrics, on the embedded server and on the real one."""

import re

import pytest

from tests.support.cluster.raw_api import RawApi
from tests.support.objects.manifests import config_map
from trainwright.cluster.apiserver.http.routes import health_response


def value_of(metrics: str, name: str, **labels: str) -> float:
    """The sum of the samples that have all these labels."""
    total = 0.0
    for line in metrics.splitlines():
        found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if found and found[1] == name and all(f'{key}="{value}"' in (found[2] or "") for key, value in labels.items()):
            total += float(found[3])
    return total


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/ping", "/readyz/ping"])
async def test_health_check_answers_ok(api: RawApi, path: str) -> None:
    reply = await api.get(path)

    assert (reply.code, reply.body) == (200, "ok")


@pytest.mark.parametrize("endpoint", ["livez", "readyz"])
async def test_verbose_health_check_lists_its_parts(api: RawApi, endpoint: str) -> None:
    lines = (await api.get(f"/{endpoint}?verbose")).body.splitlines()

    assert lines[0] == "[+]ping ok"
    assert lines[-1] == f"{endpoint} check passed"
    assert "[+]ping excluded: ok" in (await api.get(f"/{endpoint}?verbose&exclude=ping")).body


@pytest.mark.parametrize("path", ["/healthz/", "/livez/nosuch", "/metrics/"])
async def test_unknown_check_is_not_found(api: RawApi, path: str) -> None:
    reply = await api.get(path)

    assert (reply.code, reply.body) == (404, "404 page not found\n")


def test_failed_component_fails_readyz_alone() -> None:
    failed = health_response("/readyz", ["garbage collection"], verbose=False, excluded=())
    assert failed is not None
    assert failed.code == 500
    assert b"[-]garbage-collection failed: reason withheld\nreadyz check failed\n" in failed.body

    for path, excluded in (("/livez", []), ("/readyz", ["garbage-collection"])):
        passed = health_response(path, ["garbage collection"], verbose=False, excluded=excluded)
        assert passed is not None
        assert passed.body == b"ok"


async def test_requests_are_counted_by_resource_and_code(api: RawApi) -> None:
    created = {"resource": "configmaps", "verb": "POST", "version": "v1", "scope": "resource", "component": "apiserver"}
    before = (await api.get("/metrics")).body

    await api.post(api.path("configmaps"), config_map("counted"))
    await api.post(api.path("configmaps"), config_map("counted"))

    after = (await api.get("/metrics")).body
    for code, name in (("201", "apiserver_request_total"), ("409", "apiserver_request_total")):
        assert value_of(after, name, code=code, **created) - value_of(before, name, code=code, **created) == 1
    count = "apiserver_request_duration_seconds_count"
    assert value_of(after, count, **created) - value_of(before, count, **created) == 2
    bucket = "apiserver_request_duration_seconds_bucket"
    assert value_of(after, bucket, le="+Inf", **created) == value_of(after, count, **created)


async def test_metrics_have_types_and_the_process(api: RawApi) -> None:
    metrics = (await api.get("/metrics")).body

    for line in (
        "# TYPE apiserver_request_total counter",
        "# TYPE apiserver_request_duration_seconds histogram",
        "# TYPE apiserver_current_inflight_requests gauge",
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE process_resident_memory_bytes gauge",
    ):
        assert line in metrics.splitlines()
    assert value_of(metrics, "process_resident_memory_bytes") > 1_000_000
    assert value_of(metrics, "process_start_time_seconds") > 1_600_000_000
    assert "# TYPE apiserver_storage_objects gauge" in metrics
