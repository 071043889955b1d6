"""Probes, lifecycle hooks and termination message of a container as its supervisor carries them out. Pure."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from trainwright.cluster.node.pods.config.environment import expand_arguments
from trainwright.cluster.node.supervisor.lifecycle.probe_state import LIVENESS, READINESS, STARTUP
from trainwright.cluster.node.supervisor.pod_json import HandlerJson, HooksJson, LifecycleJson, MountJson, ProbeJson
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal

_PROBES = {STARTUP: "startupProbe", LIVENESS: "livenessProbe", READINESS: "readinessProbe"}
_PROBE_AGENT, _HOOK_AGENT = "kube-probe/1.35", "kube-lifecycle/1.35"


def lifecycle_settings(
    spec: Object,
    *,
    address: str,
    directory: str,
    sidecar: bool,
    variables: Mapping[str, str],
    adapt: Callable[[str], str],
) -> LifecycleJson:
    """Only what the container has. `directory` is the pod's; `adapt` replaces paths in commands where nothing can be
    mounted."""
    settings: LifecycleJson = {
        "image": spec.get("image") or "",
        "terminationMessage": {
            "file": termination_file(spec, directory),
            "policy": spec.get("terminationMessagePolicy") or "File",
        },
    }
    if sidecar:
        settings["sidecar"] = True
    probes: dict[str, ProbeJson] = {}
    for kind, field in _PROBES.items():
        if probe := spec.get(field):
            if action := probe.get("exec"):
                place, words = f"{field}.exec.command", action.get("command") or []
                words = expand_arguments(words, variables, container=spec["name"], field=place)
                probe = {**probe, "exec": {"command": words}}
            probes[kind] = _probe(probe, _handler(probe, spec, address, _PROBE_AGENT, adapt))
    if probes:
        settings["probes"] = probes
    lifecycle = spec.get("lifecycle") or {}
    hooks: HooksJson = {}
    if start := lifecycle.get("postStart"):
        hooks["postStart"] = _handler(start, spec, address, _HOOK_AGENT, adapt)
    if stop := lifecycle.get("preStop"):
        hooks["preStop"] = _handler(stop, spec, address, _HOOK_AGENT, adapt)
    if hooks:
        settings["hooks"] = hooks
    return settings


def termination_file(spec: Object, directory: str) -> str:
    """Where the container's termination message is on the host."""
    return posixpath.join(directory, "termination", str(spec["name"]))


def termination_mount(spec: Object, directory: str) -> MountJson:
    target = posixpath.normpath(posixpath.join("/", spec.get("terminationMessagePath") or "/dev/termination-log"))
    return {"source": termination_file(spec, directory), "target": target, "readOnly": False}


def _probe(probe: Object, handler: HandlerJson) -> ProbeJson:
    settings: ProbeJson = {
        "handler": handler,
        "delay": probe.get("initialDelaySeconds") or 0,
        "period": probe.get("periodSeconds") or 10,
        "timeout": probe.get("timeoutSeconds") or 1,
        "success": probe.get("successThreshold") or 1,
        "failure": probe.get("failureThreshold") or 3,
    }
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        settings["grace"] = grace
    return settings


def _handler(handler: Object, spec: Object, address: str, agent: str, adapt: Callable[[str], str]) -> HandlerJson:
    if action := handler.get("exec"):
        return {"exec": [adapt(word) for word in action.get("command") or []]}
    if action := handler.get("sleep"):
        return {"sleep": action.get("seconds") or 0}
    for name in ("httpGet", "tcpSocket", "grpc"):
        if (action := handler.get(name)) is not None:
            port = _port(action.get("port"), spec)
            if isinstance(port, str):
                return {"error": port}
            return _network_handler(name, action, action.get("host") or address, port, agent)
    return {"error": "missing probe handler"}


def _network_handler(name: str, action: Object, host: str, port: int, agent: str) -> HandlerJson:
    if name == "tcpSocket":
        return {"tcp": {"host": host, "port": port}}
    if name == "grpc":
        return {"grpc": {"host": host, "port": port, "service": action.get("service") or ""}}
    path = action.get("path") or "/"
    return {
        "http": {
            "scheme": (action.get("scheme") or "HTTP").lower(),
            "host": host,
            "port": port,
            "path": path if path.startswith("/") else f"/{path}",
            "headers": [[header["name"], header.get("value") or ""] for header in action.get("httpHeaders") or []],
            "userAgent": agent,
        }
    }


def _port(port: Any, spec: Object) -> int | str:
    """The number, or the error."""
    if isinstance(port, str) and not port.isdecimal():
        for declared in spec.get("ports") or []:
            if declared.get("name") == port:
                return int(declared["containerPort"])
        return f'strconv.Atoi: parsing "{port}": invalid syntax'
    number = port if isinstance(port, int) else parse_decimal(port or "0") or 0
    return number if 0 < number < 65536 else f"invalid port number: {number}"
