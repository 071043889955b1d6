"""The health endpoints: the API server's format, with our details."""

import pytest

from trainwright.operator.serving.health import Check, CheckResult, health_handler
from trainwright.operator.serving.http_server import Request, Response


def check(result: CheckResult) -> Check:
    return lambda: result


async def get(path: str, checks: dict[str, CheckResult], **query: str) -> Response:
    handler = health_handler("readyz", {name: check(result) for name, result in checks.items()})
    return await handler(Request(path, query, "", b""))


PASSING = {"caches": CheckResult(), "leader-election": CheckResult(detail="standby, the leader is pod-1")}
FAILING = PASSING | {"webhook": CheckResult(ok=False, detail="certificates are not ready")}


async def test_ok_is_the_whole_body_if_all_checks_pass() -> None:
    assert await get("/readyz", PASSING) == Response(200, b"ok")


async def test_verbose_shows_details_of_passing_checks() -> None:
    response = await get("/readyz", PASSING, verbose="")
    assert response.body == b"[+]caches ok\n[+]leader-election ok: standby, the leader is pod-1\nreadyz check passed\n"
    assert response.status == 200


async def test_a_failure_is_explained_without_verbose() -> None:
    response = await get("/readyz", FAILING)
    assert response.status == 500
    assert b"[-]webhook failed: certificates are not ready\nreadyz check failed\n" in response.body


@pytest.mark.parametrize(("path", "status"), [("/readyz/webhook", 500), ("/readyz/caches", 200), ("/readyz/no", 404)])
async def test_each_check_has_a_path_of_its_own(path: str, status: int) -> None:
    assert (await get(path, FAILING)).status == status


async def test_a_check_can_be_excluded() -> None:
    assert (await get("/readyz", FAILING, exclude="webhook")).status == 200
