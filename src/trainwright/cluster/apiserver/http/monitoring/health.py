"""The health checks `/healthz`, `/livez` and `/readyz`, each of them also alone, such as `/livez/ping`."""

from collections.abc import Collection

from trainwright.cluster.apiserver.http.responses import Response

_TEXT = "text/plain; charset=utf-8"
_ENDPOINTS = {"healthz", "livez", "readyz"}
_CHECKS = ("ping", "store")
"""They pass whenever the server answers: the store ends the process if it cannot write."""


def health_response(path: str, failed: Collection[str], *, verbose: bool, excluded: Collection[str]) -> Response | None:
    """The real server's text; None if this is no path of a check. `failed` are components, which only readyz has.

    Clients without a user can read it, so the reasons are only in the log.
    """
    endpoint, _, check = path.removeprefix("/").partition("/")
    if endpoint not in _ENDPOINTS:
        return None
    broken = [component.replace(" ", "-") for component in failed] if endpoint == "readyz" else []
    if check or path.endswith("/"):
        if check in broken:
            return Response(500, f"internal server error: {check} failed\n".encode(), _TEXT)
        return Response(200, b"ok", _TEXT) if check in _CHECKS else None
    broken = [check for check in broken if check not in excluded]
    if not broken and not verbose:
        return Response(200, b"ok", _TEXT)
    lines = [f"[+]{check} {'excluded: ok' if check in excluded else 'ok'}" for check in _CHECKS]
    lines += [f"[-]{check} failed: reason withheld" for check in broken]
    lines.append(f"{endpoint} check {'failed' if broken else 'passed'}")
    return Response(500 if broken else 200, "".join(f"{line}\n" for line in lines).encode(), _TEXT)
