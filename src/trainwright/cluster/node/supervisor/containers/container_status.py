"""The status of containers as pure functions: the states of the Kubernetes API, restart policy and restart back-off.

The supervisor applies them to running processes, the agent to pods without a supervisor. Standard library only.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import (
        BackoffJson,
        ContainerState,
        ContainerStatus,
        FinishedRun,
        PodState,
        TerminatedState,
    )

MAX_RUNS = 200
"""Runs of a container that are recorded; a crash loop does not fill the disk."""

ALWAYS = "Always"
ON_FAILURE = "OnFailure"
NEVER = "Never"

CONTAINER_CREATING = "ContainerCreating"
POD_INITIALIZING = "PodInitializing"
CRASH_LOOP_BACK_OFF = "CrashLoopBackOff"
CONTAINER_STATUS_UNKNOWN = "ContainerStatusUnknown"

NODE_SHUTDOWN = "Terminated"
"""The kubelet's reason of a pod that it ended before the node was shut down."""
NODE_SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."

BACKOFF: BackoffJson = {"initial": 10.0, "limit": 300.0, "reset": 600.0}
"""The kubelet's values in seconds. The first restart is immediate; each further delay is twice the last one. A
container that ran for `reset` seconds restarts without a delay."""


def waiting(reason: str, message: str = "") -> ContainerState:
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def running(started_at: str) -> ContainerState:
    return {"running": {"startedAt": started_at}}


def terminated(
    *, exit_code: int, reason: str, started_at: str, finished_at: str, signal: int = 0, message: str = ""
) -> ContainerState:
    state: TerminatedState = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": started_at,
        "finishedAt": finished_at,
    }
    if signal:
        state["signal"] = signal
    if message:
        state["message"] = message
    return {"terminated": state}


def new_status(name: str, *, initialized: bool, sidecar: bool = False) -> ContainerStatus:
    state = waiting(CONTAINER_CREATING if initialized else POD_INITIALIZING)
    status: ContainerStatus = {"name": name, "restarts": 0, "state": state, "last": {}, "runs": []}
    return {**status, "sidecar": True} if sidecar else status


def is_started(status: ContainerStatus) -> bool:
    return "running" in status["state"] and bool(status.get("started", True))


def is_ready(status: ContainerStatus) -> bool:
    return "running" in status["state"] and bool(status.get("ready", True))


def next_run(status: ContainerStatus) -> ContainerStatus:
    """The status at the start of the next run."""
    last = status["last"] if exit_code(status) is None else status["state"]
    disruptions = status.get("disruptions", 0) + bool(status.get("disrupted"))
    restarts = status["restarts"] + bool(last)
    return {**status, "last": last, "restarts": restarts, "disrupted": False, "disruptions": disruptions}


def with_finished_run(status: ContainerStatus, state: ContainerState) -> ContainerStatus:
    """The status after the current run has ended in this terminated state."""
    run: FinishedRun = {"number": status["restarts"], **state["terminated"]}
    return {**status, "state": state, "runs": [*finished_runs(status), run][-MAX_RUNS:]}


def finished_runs(status: ContainerStatus) -> list[FinishedRun]:
    """The terminated states of the runs, each with its `number`; times have nanoseconds."""
    if "runs" in status:
        return list(status["runs"])
    # Written by an earlier version.
    last = status["restarts"] - ("waiting" not in status["state"])
    return [
        {"number": number, **state["terminated"]}
        for state, number in ((status["last"], last), (status["state"], status["restarts"]))
        if "terminated" in state and number >= 0
    ]


def decode_wait_status(status: int) -> tuple[int, int]:
    """Exit code and signal. A killed process has the exit code 128 + signal, as for a shell and the kubelet."""
    signal = status & 0x7F
    return (128 + signal, signal) if signal else (status >> 8, 0)


def should_restart(policy: str, exit_code: int, *, init: bool, sidecar: bool = False) -> bool:
    """Init containers run until they succeed once, sidecars as long as the pod."""
    if sidecar:
        return True
    if init:
        return exit_code != 0 and policy != NEVER
    return policy == ALWAYS or (policy == ON_FAILURE and exit_code != 0)


def next_backoff(last: float | None, *, ran: float, backoff: BackoffJson) -> float:
    """Seconds until the next start. `last` is the previous delay, None before the first restart."""
    if last is None or ran >= backoff["reset"]:
        return 0.0
    return min(max(last * 2, backoff["initial"]), backoff["limit"])


def exit_code(status: ContainerStatus) -> int | None:
    """None if the container has not terminated."""
    found = status["state"].get("terminated")
    return None if found is None else int(found["exitCode"])


def is_initialized(inits: list[ContainerStatus], mains: list[ContainerStatus]) -> bool:
    """Sidecars have started; if one restarts later, the pod stays initialized."""
    begun = any(_has_begun(status) for status in mains)
    return all(begun or is_started(status) if status.get("sidecar") else exit_code(status) == 0 for status in inits)


def _has_begun(status: ContainerStatus) -> bool:
    """True if the container has run since the pod was initialized."""
    reason = status["state"].get("waiting", {}).get("reason")
    return reason is None or (reason == CRASH_LOOP_BACK_OFF and bool(status["last"]))


def is_finished(policy: str, inits: list[ContainerStatus], mains: list[ContainerStatus]) -> bool:
    """True if no container of the pod will run again, except sidecars, which end with the others."""
    for status in inits:
        if status.get("sidecar"):
            continue
        code = exit_code(status)
        if code is None:
            return False
        if code != 0:
            return not should_restart(policy, code, init=True)
    codes = [exit_code(status) for status in mains]
    return all(code is not None and not should_restart(policy, code, init=False) for code in codes)


def terminated_with_pod(status: ContainerStatus, now: str) -> ContainerStatus:
    """The status of a container once its pod is terminated: it will not start (again)."""
    if "terminated" in status["state"]:
        return status
    if status["last"].get("terminated") and "waiting" in status["state"]:
        return {**status, "state": status["last"]}
    return {**status, "state": _unknown(status, now, "The container could not be located when the pod was terminated")}


def without_supervisor(state: PodState, policy: str, now: str, *, shutdown: bool = False) -> PodState:
    """The state of a pod whose supervisor ended with the cluster (`shutdown`) or unexpectedly: it was killed, or the
    machine was rebooted.

    Running containers are reported as the kubelet reports containers that it cannot find. `finished` is False if the
    restart policy requires that the pod is started again.
    """
    message = "The container could not be located when the node came back: its supervisor had ended"

    def without_process(status: ContainerStatus) -> ContainerStatus:
        if "running" not in status["state"]:
            return status
        ended = with_finished_run(status, _unknown(status, now, message))
        return {**ended, "disrupted": shutdown}

    inits = [without_process(status) for status in state["initContainers"]]
    mains = [without_process(status) for status in state["containers"]]
    restart = policy != NEVER and not is_finished(policy, inits, mains)
    if not restart:
        mains = [terminated_with_pod(status, now) for status in mains]
        if any(status.get("disrupted") for status in [*inits, *mains] if not status.get("sidecar")):
            state = {**state, "reason": NODE_SHUTDOWN, "message": NODE_SHUTDOWN_MESSAGE}
    elif shutdown or any(status.get("disrupted") for status in mains):
        # Init containers run again before those that the shutdown ended.
        inits = [{**status, "disrupted": True} if exit_code(status) == 0 else status for status in inits]
    return {**state, "initContainers": inits, "containers": mains, "finished": not restart}


def ended_by_shutdown(status: ContainerStatus, code: int, *, started_at: str, finished_at: str) -> ContainerStatus:
    """The status of a container that was stopped with the cluster.

    It is reported as after a reboot: a program that saved a checkpoint and exited with 0 has not finished its work. Its
    next start does not count as a restart of the job.
    """
    state = terminated(
        exit_code=137,
        reason=CONTAINER_STATUS_UNKNOWN,
        started_at=started_at,
        finished_at=finished_at,
        message=f"The cluster was stopped; the program ended with exit code {code}",
    )
    return {**with_finished_run(status, state), "disrupted": True}


def reset_for_restart(status: ContainerStatus, *, init: bool, policy: str) -> ContainerStatus:
    """The initial status under a new supervisor of the same pod: a container that has not finished starts again."""
    code = exit_code(status)
    if code is None or (not init and not should_restart(policy, code, init=False)):
        return status
    return {**status, "last": status["state"], "state": waiting(CONTAINER_CREATING if init else POD_INITIALIZING)}


def duration(seconds: float) -> str:
    """As Go prints durations: `10s`, `1m20s`, `5m0s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest:g}s"


def timestamp(nanoseconds: int) -> str:
    """`2026-11-15T04:05:06.123456789Z`, the form of container runtimes."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


def _unknown(status: ContainerStatus, now: str, message: str) -> ContainerState:
    started = status["state"].get("running", {}).get("startedAt", now)
    return terminated(
        exit_code=137, reason=CONTAINER_STATUS_UNKNOWN, started_at=started, finished_at=now, message=message
    )
