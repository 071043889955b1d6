"""The results of a container's probes as pure functions: thresholds, readiness, and when a container is killed.

As the kubelet's probe workers: a result counts when it has been seen as often in a row as its threshold says. Standard
library only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    ProbeState = dict[str, Any]
else:
    ProbeState = dict
"""`result` counts; `last` is the outcome of the last attempt and `run` how often it was seen in a row; `held`: no more
attempts are made in this run of the container."""

STARTUP, LIVENESS, READINESS = "startup", "liveness", "readiness"

SUCCESS, FAILURE, UNKNOWN = "success", "failure", "unknown"
"""UNKNOWN is the result of a startup probe before its first success, and of an attempt that could not be made."""

_INITIAL = {STARTUP: UNKNOWN, LIVENESS: SUCCESS, READINESS: FAILURE}


def initial_state(kind: str) -> ProbeState:
    """At the start of a run of the container."""
    return {"result": _INITIAL[kind], "last": None, "run": 0, "held": False}


def after_attempt(kind: str, state: ProbeState, outcome: str, *, success: int, failure: int) -> ProbeState:
    """`success` and `failure` are the thresholds. An attempt that could not be made changes nothing."""
    if outcome == UNKNOWN or state["held"]:
        return state
    run = state["run"] + 1 if state["last"] == outcome else 1
    if run < (success if outcome == SUCCESS else failure):
        return {**state, "last": outcome, "run": run}
    if kind == STARTUP or (kind == LIVENESS and outcome == FAILURE):
        return {"result": outcome, "last": outcome, "run": 0, "held": True}
    return {**state, "result": outcome, "last": outcome, "run": run}


def is_started(states: Mapping[str, ProbeState]) -> bool:
    return STARTUP not in states or states[STARTUP]["result"] == SUCCESS


def is_ready(states: Mapping[str, ProbeState]) -> bool:
    return is_started(states) and (READINESS not in states or states[READINESS]["result"] == SUCCESS)


def is_active(kind: str, states: Mapping[str, ProbeState]) -> bool:
    """True if attempts are due: the startup probe until it has succeeded, then the others."""
    return not states[kind]["held"] and (kind == STARTUP) != is_started(states)


def failed_probe(states: Mapping[str, ProbeState]) -> str | None:
    """The probe because of which the container is killed."""
    for kind in (LIVENESS, STARTUP):
        if kind in states and states[kind]["result"] == FAILURE:
            return kind
    return None
