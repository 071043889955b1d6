"""How containers come and go, as pure functions: the states that the Kubernetes API shows, restarts and their back-off.

The supervisor applies it to running processes, the agent to pods whose supervisor is gone. Standard library only.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # typing itself would cost every pod four milliseconds
if TYPE_CHECKING:
    from typing import Any

    Record = dict[str, Any]
else:
    Record = dict
"""What is known of one container: `name`, `restarts`, `state` and `last` as the API spells ContainerState."""

ALWAYS = "Always"
ON_FAILURE = "OnFailure"
NEVER = "Never"

STILL_STARTING = "ContainerCreating"
INITIALIZING = "PodInitializing"
CRASH_LOOP = "CrashLoopBackOff"
UNKNOWN = "ContainerStatusUnknown"

BACKOFF = {"initial": 10.0, "limit": 300.0, "reset": 600.0}
"""The kubelet's, in seconds: the first restart comes at once, each further one after twice the time, and a container
that ran for `reset` starts over."""


def waiting(reason: str, message: str = "") -> Record:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running(started_at: str) -> Record:
    return {"running": {"startedAt": started_at}}


def terminated(
    *, exit_code: int, reason: str, started_at: str, finished_at: str, signal: int = 0, message: str = ""
) -> Record:
    ended: Record = {"exitCode": exit_code, "reason": reason, "startedAt": started_at, "finishedAt": finished_at}
    if signal:
        ended["signal"] = signal
    if message:
        ended["message"] = message
    return {"terminated": ended}


def new_record(name: str, *, initialized: bool) -> Record:
    return {"name": name, "restarts": 0, "state": waiting(STILL_STARTING if initialized else INITIALIZING), "last": {}}


def exit_of(status: int) -> tuple[int, int]:
    """Exit code and signal of a wait status, the code as a shell and the kubelet report it: 128 + signal."""
    signal = status & 0x7F
    return (128 + signal, signal) if signal else (status >> 8, 0)


def restarts(policy: str, exit_code: int, *, init: bool) -> bool:
    """Whether a container that ended so is started again. Init containers have to succeed, and only once."""
    if init:
        return exit_code != 0 and policy != NEVER
    return policy == ALWAYS or (policy == ON_FAILURE and exit_code != 0)


def next_delay(delay: float | None, *, ran: float, backoff: dict[str, float]) -> float:
    """Seconds to wait before the next start, given the wait before the last one (None: there was no restart yet)."""
    if delay is None or ran >= backoff["reset"]:
        return 0.0
    return min(max(delay * 2, backoff["initial"]), backoff["limit"])


def exit_code_of(record: Record) -> int | None:
    ended = record["state"].get("terminated")
    return None if ended is None else int(ended["exitCode"])


def initialized(inits: list[Record]) -> bool:
    return all(exit_code_of(record) == 0 for record in inits)


def settled(policy: str, inits: list[Record], mains: list[Record]) -> bool:
    """Whether nothing of the pod will ever run again."""
    for record in inits:
        code = exit_code_of(record)
        if code is None:
            return False
        if code != 0:
            return not restarts(policy, code, init=True)
    codes = [exit_code_of(record) for record in mains]
    return all(code is not None and not restarts(policy, code, init=False) for code in codes)


def closed(record: Record, now: str) -> Record:
    """The container of a pod that ends: it will not start (again)."""
    if "terminated" in record["state"]:
        return record
    if record["last"].get("terminated") and "waiting" in record["state"]:
        return {**record, "state": record["last"]}
    return {**record, "state": _unknown(record, now, "The container could not be located when the pod was terminated")}


def lost(state: Record, policy: str, now: str) -> Record:
    """The pod whose supervisor is gone: killed, or the machine was rebooted.

    What ran is reported as the kubelet reports what it cannot find. `finished` says whether the pod ends by that or,
    by its restart policy, has to be started again.
    """
    message = "The container could not be located when the node came back: its supervisor had ended"

    def without_process(record: Record) -> Record:
        if "running" not in record["state"]:
            return record
        return {**record, "state": _unknown(record, now, message)}

    inits = [without_process(record) for record in state["initContainers"]]
    mains = [without_process(record) for record in state["containers"]]
    again = policy != NEVER and not settled(policy, inits, mains)
    if not again:
        mains = [closed(record, now) for record in mains]
    return {**state, "initContainers": inits, "containers": mains, "finished": not again}


def resumed(record: Record, *, init: bool, policy: str) -> Record:
    """The container as a new supervisor of the same pod begins with it: what is not done is started once more."""
    code = exit_code_of(record)
    if code is None or (not init and not restarts(policy, code, init=False)):
        return record
    return {**record, "last": record["state"], "state": waiting(STILL_STARTING if init else INITIALIZING)}


def timestamp(nanoseconds: int) -> str:
    """`2026-11-15T04:05:06.123456789Z`, as container runtimes stamp log lines."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"


def _unknown(record: Record, now: str, message: str) -> Record:
    started = record["state"].get("running", {}).get("startedAt", now)
    return terminated(exit_code=137, reason=UNKNOWN, started_at=started, finished_at=now, message=message)
