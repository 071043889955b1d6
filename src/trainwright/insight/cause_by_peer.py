"""How a process reports that another one of its job has failed, or does not respond."""

import re
import signal
from collections.abc import Sequence

from trainwright.insight.process_end import Cause, Explanation, ProcessEnd, is_progress, tail
from trainwright.objects.kinds.container_runs import Line

_LOST_PEER = re.compile(
    r"Connection (?:reset|closed|refused) by peer|Broken pipe|socket (?:was|is) closed"
    r"|\bRemote end closed\b|NCCL communicator was aborted|ncclRemoteError|recvValue failed|DistNetworkError"
    r"|failed to (?:send|recv)\b.{0,80}(?:peer|rank)|Application timeout caused pair closure"
    r"|connectFullMesh failed"
    # torchrun, whose workers or rendezvous failed elsewhere
    r"|RendezvousConnectionError|RendezvousClosedError|RendezvousGracefulExitError"
    # gRPC, in TensorFlow and JAX
    r"|\bSocket closed\b|failed to connect to all addresses|GRPC error information from remote target"
    r"|Collective ops is aborted by|CoordinationServiceError|JAX distributed service detected fatal errors"
    # XGBoost
    r"|The other end is likely closed|Socket error\. Connection (?:reset|refused)"
    # gloo, in PaddlePaddle
    r"|gloo/transport/tcp/pair\.cc:\d{1,6}\] TIMEOUT",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(
    r"Timed out waiting \d{1,12}\s?ms for (?:recv|send)|wait timeout after \d{1,12}\s?ms|Socket Timeout"
    r"|Timed out after \d{1,9} seconds waiting for clients|collective operation timeout|RendezvousTimeoutError"
    r"|monitoredBarrier|Connect timeout|timed out.{0,40}\bbarrier\b|Timed out initializing process group",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"client socket has (?:timed out|failed)|No route to host|Network is unreachable|ConnectionRefusedError",
    re.IGNORECASE,
)
UNKNOWN_NAME = re.compile(r"gaierror|Name or service not known|Temporary failure in name resolution", re.IGNORECASE)
"""A name outlives the pod, so this is not the fault of a peer."""
_OWN_CONNECTION = re.compile(r"urllib3|requests\.exceptions|botocore|httpx\.|huggingface_hub|HTTPSConnectionPool")
"""A program that cannot reach a service of its own has not lost a peer."""
_ERROR_CODES = frozenset({1, 128 + signal.SIGABRT})
"""How programs end after an error: Python with 1, and JAX and TensorFlow by abort()."""


PEER_ADVICE = {
    Cause.LOST_PEER: "see the logs of the other pods",
    Cause.TIMEOUT: "see what the other pods do; if they only need longer, raise the timeout of init_process_group",
    Cause.UNREACHABLE_PEER: "check that the master runs and that MASTER_ADDR and MASTER_PORT are its own",
}


def caused_by_peers(ended: ProcessEnd) -> Cause | None:
    """How the process reports that another one has failed or does not respond; None if it failed by itself.

    If it raised an exception, only the first one of the chain counts: while a program ends, frameworks print further
    errors about connections, also in the program that failed first.
    """
    if ended.exit_code == 0:
        return None
    if ended.exception is not None:
        text = "\n".join(ended.exception.first)
    elif ended.exit_code in _ERROR_CODES:
        text = tail(ended.lines)
    else:
        return None
    if any(pattern.search(text) for pattern in (PORT_IN_USE, _OWN_CONNECTION, UNKNOWN_NAME)):
        return None
    return next((cause for cause, pattern in PEERS.items() if pattern.search(text)), None)


def unreachable_peer(lines: Sequence[Line]) -> Explanation | None:
    """For a process that has not failed: what it says about a peer that it does not reach."""
    found = None
    for line in lines:
        if _UNREACHABLE.search(line.text):
            found = line.text
        elif found and is_progress(line.text):
            found = None  # it has reached the peer since
    if found is None:
        return None
    return Explanation(Cause.UNREACHABLE_PEER, found.strip()[:300], PEER_ADVICE[Cause.UNREACHABLE_PEER])


PEERS = {Cause.UNREACHABLE_PEER: _UNREACHABLE, Cause.TIMEOUT: _TIMEOUT, Cause.LOST_PEER: _LOST_PEER}
PORT_IN_USE = re.compile(r"Address already in use|EADDRINUSE", re.IGNORECASE)
