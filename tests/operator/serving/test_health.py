"""The health pages: Kubernetes' words, our reasons."""

import pytest

from trainwright.operator.serving.health import Check, CheckResult, health_handler
from trainwright.operator.serving.http_server import Request, Response


def saying(finding: CheckResult) -> Check:
    return lambda: finding


async def ask(path: str, checks: dict[str, CheckResult], **query: str) -> Response:
    page = health_handler("readyz", {name: saying(finding) for name, finding in checks.items()})
    return await page(Request(path, query, "", b""))


WELL = {"caches": CheckResult(), "leader-election": CheckResult(detail="standby, other-pod leads")}
ILL = WELL | {"webhook": CheckResult(ok=False, detail="certificates are not ready")}


async def test_all_is_well_in_two_letters() -> None:
    assert await ask("/readyz", WELL) == Response(200, b"ok")


async def test_verbose_says_what_one_should_know() -> None:
    answer = await ask("/readyz", WELL, verbose="")
    assert answer.body == b"[+]caches ok\n[+]leader-election ok: standby, other-pod leads\nreadyz check passed\n"
    assert answer.status == 200


async def test_a_failure_is_explained_without_asking() -> None:
    answer = await ask("/readyz", ILL)
    assert answer.status == 500
    assert b"[-]webhook failed: certificates are not ready\nreadyz check failed\n" in answer.body


@pytest.mark.parametrize(("path", "status"), [("/readyz/webhook", 500), ("/readyz/caches", 200), ("/readyz/no", 404)])
async def test_each_check_has_a_page_of_its_own(path: str, status: int) -> None:
    assert (await ask(path, ILL)).status == status


async def test_a_check_can_be_left_out() -> None:
    assert (await ask("/readyz", ILL, exclude="webhook")).status == 200
