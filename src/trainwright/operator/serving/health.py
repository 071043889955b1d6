"""The `/healthz` and `/readyz` endpoints: named checks, reported in the format of the Kubernetes API server.

A check that is ok may have a detail, which `?verbose` shows: a standby without the lease is ready, and so is an
operator whose webhooks are off.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainwright.operator.serving.http_server import Handler, Request, Response


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check; `detail` is the reason of a failure, or additional information."""

    ok: bool = True
    detail: str = ""


Check = Callable[[], CheckResult]


def health_handler(name: str, checks: Mapping[str, Check]) -> Handler:
    """Serves `/NAME` and, below it, each check by itself. `exclude=CHECK` omits one, as in the API server."""

    async def handle(request: Request) -> Response:
        single = request.path.removeprefix(f"/{name}").strip("/")
        if single and single not in checks:
            return Response(404, b"404 page not found\n")
        selected = {single: checks[single]} if single else checks
        excluded = request.query.get("exclude")
        results = {check: run() for check, run in selected.items() if check != excluded}
        return report(name, results, verbose="verbose" in request.query)

    return handle


def report(name: str, results: Mapping[str, CheckResult], *, verbose: bool) -> Response:
    passed = all(result.ok for result in results.values())
    if passed and not verbose:
        return Response(200, b"ok")
    lines = [*(_line(check, result) for check, result in results.items())]
    lines.append(f"{name} check {'passed' if passed else 'failed'}\n")
    return Response(200 if passed else 500, "\n".join(lines).encode())


def _line(check: str, result: CheckResult) -> str:
    mark, verdict = ("+", "ok") if result.ok else ("-", "failed")
    return f"[{mark}]{check} {verdict}" + (f": {result.detail}" if result.detail else "")
