"""The probes of one container while it runs: when the next attempt is due, and what the results are.

The decisions are in `probe_state`. Standard library only.
"""

from __future__ import annotations

import math

from trainwright.cluster.node.supervisor.lifecycle import probe_state
from trainwright.cluster.node.supervisor.lifecycle.handlers import WARNING, Handlers
from trainwright.cluster.node.supervisor.lifecycle.probe_state import LIVENESS, READINESS, STARTUP, SUCCESS

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwright.cluster.node.supervisor.containers.container import Container
    from trainwright.cluster.node.supervisor.pod_json import ProbeJson

_TITLES = {STARTUP: "Startup", LIVENESS: "Liveness", READINESS: "Readiness"}


class ContainerProbes:
    """`record` gets reason and message of a Warning event, `on_change` is called when a result has changed."""

    def __init__(
        self,
        container: Container,
        handlers: Handlers,
        *,
        record: Callable[[str, str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._container = container
        self._specs: dict[str, ProbeJson] = container.spec["probes"]
        self._handlers = handlers
        self._record = record
        self._on_change = on_change
        self._states = {kind: probe_state.initial_state(kind) for kind in self._specs}
        self._started = 0.0
        self._due: dict[str, float] = {}
        self._trying: set[str] = set()

    @property
    def is_started(self) -> bool:
        return probe_state.is_started(self._states)

    @property
    def is_ready(self) -> bool:
        return probe_state.is_ready(self._states)

    @property
    def failed(self) -> str | None:
        """The probe because of which the container is to be killed."""
        return probe_state.failed_probe(self._states)

    def begin(self, now: float) -> None:
        """The container has started."""
        self._started = now
        self._due = {kind: now + first_delay(kind, spec) for kind, spec in self._specs.items()}

    def tick(self, now: float, *, terminating: bool) -> None:
        """Starts the attempts that are due; a container that is being terminated has only its readiness probe."""
        for kind, at in self._due.items():
            if now >= at and self._is_active(kind, terminating=terminating):
                self._trying.add(kind)
                spec = self._specs[kind]
                self._due[kind] = now + spec["period"]
                self._handlers.start(self._container, spec["handler"], spec["timeout"], self._result_of(kind))

    def next_at(self, *, terminating: bool) -> float | None:
        active = [at for kind, at in self._due.items() if self._is_active(kind, terminating=terminating)]
        return min(active, default=None)

    def _is_active(self, kind: str, *, terminating: bool) -> bool:
        if kind in self._trying or (terminating and kind != READINESS):
            return False
        return probe_state.is_active(kind, self._states)

    def _result_of(self, kind: str) -> Callable[[str, str], None]:
        return lambda outcome, text: self._on_result(kind, outcome, text)

    def _on_result(self, kind: str, outcome: str, text: str) -> None:
        self._trying.discard(kind)
        title, spec, before = _TITLES[kind], self._specs[kind], self._states[kind]["result"]
        if outcome == probe_state.FAILURE:
            self._record("Unhealthy", f"{title} probe failed: {text}")
        elif outcome == probe_state.UNKNOWN:
            self._record("Unhealthy", f"{title} probe errored and resulted in unknown state: {text}")
        elif outcome == WARNING:
            self._record("ProbeWarning", f"{title} probe warning: {text}")
            outcome = SUCCESS
        self._states[kind] = probe_state.after_attempt(
            kind, self._states[kind], outcome, success=spec["success"], failure=spec["failure"]
        )
        if self._states[kind]["result"] != before:
            self._on_change()


def first_delay(kind: str, spec: ProbeJson) -> float:
    """Seconds from the start of the container to the first attempt. The kubelet tries liveness by a ticker that began
    before the container, so that the first attempt is about a period after the start."""
    delay, period = float(spec["delay"]), float(spec["period"])
    return delay if kind != LIVENESS else period * max(1, math.ceil(delay / period))
