"""What `/healthz` and `/readyz` answer: named checks in the words of Kubernetes' own health pages.

That a page answers at all shows that the event loop turns. A check that holds may still have something to say, which
`?verbose` shows: a standby without the lease is ready, and so is an operator whose webhooks are off.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainwright.operator.serving.http_server import Call, Page, Reply


@dataclass(frozen=True, slots=True)
class Finding:
    """How one part is; `detail` says why it is not well, or what one should know although it is."""

    well: bool = True
    detail: str = ""


Check = Callable[[], Finding]


def health_page(name: str, checks: Mapping[str, Check]) -> Page:
    """The page `/NAME` and, below it, one for each check. `exclude=CHECK` leaves one out, as the API server does."""

    async def page(call: Call) -> Reply:
        single = call.path.removeprefix(f"/{name}").strip("/")
        if single and single not in checks:
            return Reply(404, b"404 page not found\n")
        wanted = {single: checks[single]} if single else checks
        excluded = call.query.get("exclude")
        findings = {check: look() for check, look in wanted.items() if check != excluded}
        return report(name, findings, verbose="verbose" in call.query)

    return page


def report(name: str, findings: Mapping[str, Finding], *, verbose: bool) -> Reply:
    well = all(finding.well for finding in findings.values())
    if well and not verbose:
        return Reply(200, b"ok")
    lines = [*(_line(check, finding) for check, finding in findings.items())]
    lines.append(f"{name} check {'passed' if well else 'failed'}\n")
    return Reply(200 if well else 500, "\n".join(lines).encode())


def _line(check: str, finding: Finding) -> str:
    mark, verdict = ("+", "ok") if finding.well else ("-", "failed")
    return f"[{mark}]{check} {verdict}" + (f": {finding.detail}" if finding.detail else "")
