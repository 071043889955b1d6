"""Defaults and checks of the probes and lifecycle hooks of containers."""

from collections.abc import Iterator

from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, invalid, not_supported, required

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_DEFAULTS = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_WITHOUT_RESTARTS = "may not be set for init containers without restartPolicy=Always"


def set_probe_defaults(container: Object) -> None:
    for name in PROBES:
        if probe := container.get(name):
            for field, value in _DEFAULTS.items():
                probe[field] = probe.get(field) or value
            _default_handler(probe)
    for name in _HOOKS:
        if handler := (container.get("lifecycle") or {}).get(name):
            _default_handler(handler)


def _default_handler(handler: Object) -> None:
    if (action := handler.get("httpGet")) is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")
    if (action := handler.get("grpc")) is not None:
        action.setdefault("service", "")


def probe_errors(container: Object, path: str, *, one_time: bool, grace: int | None) -> Iterator[FieldError]:
    """`one_time`: an init container that is no sidecar; `grace` is terminationGracePeriodSeconds."""
    if one_time:
        for name in ("lifecycle", *PROBES):
            if container.get(name) is not None:
                yield forbidden(f"{path}.{name}", _WITHOUT_RESTARTS)
        return
    for name in _HOOKS:
        if (handler := (container.get("lifecycle") or {}).get(name)) is not None:
            yield from _handler_errors(handler, f"{path}.lifecycle.{name}", grace)
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            yield from _probe_errors(probe, name, f"{path}.{name}", grace)


def _probe_errors(probe: Object, name: str, path: str, grace: int | None) -> Iterator[FieldError]:
    yield from _handler_errors(probe, path, grace)
    for field in _NUMBERS:
        if (value := probe.get(field) or 0) < 0:
            yield invalid(f"{path}.{field}", value, "must be greater than or equal to 0")
    own_grace = probe.get("terminationGracePeriodSeconds")
    if own_grace is not None and own_grace <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", own_grace, "must be greater than 0")
    if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        yield invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    if name == "readinessProbe" and own_grace is not None:
        yield invalid(f"{path}.terminationGracePeriodSeconds", own_grace, "must not be set for readinessProbes")


def _handler_errors(handler: Object, path: str, grace: int | None) -> Iterator[FieldError]:
    found = [name for name in _HANDLERS if handler.get(name) is not None]
    for extra in found[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if not found:
        yield required(path, "must specify a handler type")
        return
    name, action = found[0], handler[found[0]]
    if name == "exec" and not action.get("command"):
        yield required(f"{path}.exec.command")
    if name == "sleep" and grace is not None and not 0 <= (seconds := action.get("seconds") or 0) <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(f"{path}.sleep", seconds, detail)
    if name == "httpGet" and not action.get("path"):
        yield required(f"{path}.httpGet.path")
    if name in {"httpGet", "tcpSocket", "grpc"}:
        port = action.get("port", 0)
        if isinstance(port, int) and not 1 <= port <= 65535:
            yield invalid(f"{path}.{name}.port", port, "must be between 1 and 65535, inclusive")
    if name == "httpGet" and action["scheme"] not in _SCHEMES:
        yield not_supported(f"{path}.httpGet.scheme", action["scheme"], _SCHEMES)
