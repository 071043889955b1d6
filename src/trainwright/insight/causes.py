"""Why one process failed: the class of the cause, the cause in one line and what to do, from its end and its log."""

import posixpath
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from trainwright.insight.exceptions import Line, RaisedException
from trainwright.insight.progress import read_line


class Cause(StrEnum):
    """The class of a cause. Users read it in `status.failure.cause`, so the values are part of the API."""

    EXCEPTION = "exception"
    EXIT_CODE = "exit-code"
    MISSING_MODULE = "missing-module"
    MISSING_FILE = "missing-file"
    COMMAND_NOT_FOUND = "command-not-found"
    SYNTAX_ERROR = "syntax-error"
    BAD_ARGUMENT = "bad-argument"
    DISK_FULL = "disk-full"
    PERMISSION_DENIED = "permission-denied"
    ACCESS_DENIED = "access-denied"
    CHECKPOINT = "checkpoint"
    OUT_OF_MEMORY = "out-of-memory"
    NO_GPU = "no-gpu"
    MISSING_BACKEND = "missing-backend"
    NAN = "nan"
    PORT_IN_USE = "port-in-use"
    NATIVE_CRASH = "native-crash"
    KILLED = "killed"
    TERMINATED = "terminated"
    EARLY_EXIT = "early-exit"
    UNREACHABLE_PEER = "unreachable-peer"
    TIMEOUT = "timeout"
    LOST_PEER = "lost-peer"
    POD_FAILED = "pod-failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Explanation:
    cause: Cause
    summary: str
    """The cause in one line."""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about the end of a process."""

    exit_code: int | None
    reason: str = ""
    message: str = ""
    exception: RaisedException | None = None
    """The exception that ended it."""
    lines: Sequence[Line] = ()
    """The end of its log."""
    python: str = ""
    installer: str = ""
    directory: str = ""
    """The working directory; empty if it is unknown."""
    missing_image: str = ""
    """The image that this machine did not have: the process had the machine's files."""


def explain(evidence: Evidence) -> Explanation:
    """Never raises, and always has a summary."""
    for rule in (_pod_reason, _exception, _output, _report_of_peers, _signal, _exit_code):
        if found := rule(evidence):
            break
    else:
        found = Explanation(Cause.UNKNOWN, "")
    # It may quote what the program wrote: control characters have no place in an event.
    summary = " ".join(_CONTROL.sub(" ", found.summary).split())
    return replace(found, summary=summary or describe_end(evidence.exit_code, evidence.reason))


def describe_end(exit_code: int | None, reason: str = "") -> str:
    """`exit code 1`, `exit code 137 (SIGKILL)`, `OOMKilled (exit code 137)`."""
    if exit_code is None:
        return reason or "still running"
    code = f"exit code {exit_code}"
    if reason not in _GENERIC_REASONS:
        return f"{reason} ({code})"
    name = signal_name(exit_code)
    return f"{code} ({name})" if name else code


def signal_name(exit_code: int | None) -> str | None:
    """The signal of an exit code above 128."""
    try:
        return signal.Signals(exit_code - 128).name if exit_code is not None and exit_code > 128 else None
    except ValueError:
        return None


def decisive_exception(
    exceptions: Sequence[RaisedException], lines: Sequence[Line], exit_code: int | None
) -> RaisedException | None:
    """The exception that ended the program: the last one, unless the program kept training after it."""
    if not exceptions or exit_code == 0:
        return None
    last = exceptions[-1]
    after = lines[last.raised_line + 1 :]
    if any(_is_later(line, last) and _is_progress(line.text) for line in after[:_CHECKED_LINES]):
        return None
    if signal_name(exit_code) in _CRASHES - {"SIGABRT"} and len(after) > _NEAR_LINES:
        return None
    return last


def _is_later(line: Line, raised: RaisedException) -> bool:
    """False for the lines of its message."""
    return line.at is None or raised.at is None or line.at > raised.at + _MESSAGE_SECONDS


_MESSAGE_SECONDS = 0.5
_CONTROL = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|[\x00-\x1f\x7f-\x9f]")
_GENERIC_REASONS = frozenset({"", "Error", "Completed", "Unknown"})
_CHECKED_LINES, _NEAR_LINES = 500, 30
_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE", "SIGTRAP", "SIGSYS"})
_STOPS = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"})

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
_UNKNOWN_NAME = re.compile(r"gaierror|Name or service not known|Temporary failure in name resolution", re.IGNORECASE)
"""A name outlives the pod, so this is not the fault of a peer."""
_OWN_CONNECTION = re.compile(r"urllib3|requests\.exceptions|botocore|httpx\.|huggingface_hub|HTTPSConnectionPool")
"""A program that cannot reach a service of its own has not lost a peer."""
_ERROR_CODES = frozenset({1, 128 + signal.SIGABRT})
"""How programs end after an error: Python with 1, and JAX and TensorFlow by abort()."""


def caused_by_peers(evidence: Evidence) -> Cause | None:
    """How the process reports that another one has failed or does not respond; None if it failed by itself.

    If it raised an exception, only the first one of the chain counts: while a program ends, frameworks print further
    errors about connections, also in the program that failed first.
    """
    if evidence.exit_code == 0:
        return None
    if evidence.exception is not None:
        text = "\n".join(evidence.exception.first)
    elif evidence.exit_code in _ERROR_CODES:
        text = _tail(evidence.lines)
    else:
        return None
    if any(pattern.search(text) for pattern in (_PORT_IN_USE, _OWN_CONNECTION, _UNKNOWN_NAME)):
        return None
    return next((cause for cause, pattern in _PEERS.items() if pattern.search(text)), None)


def unreachable_peer(lines: Sequence[Line]) -> Explanation | None:
    """For a process that has not failed: what it says about a peer that it does not reach."""
    found = None
    for line in lines:
        if _UNREACHABLE.search(line.text):
            found = line.text
        elif found and _is_progress(line.text):
            found = None  # it has reached the peer since
    if found is None:
        return None
    return Explanation(Cause.UNREACHABLE_PEER, found.strip()[:300], _PEER_ADVICE[Cause.UNREACHABLE_PEER])


_PEERS = {Cause.UNREACHABLE_PEER: _UNREACHABLE, Cause.TIMEOUT: _TIMEOUT, Cause.LOST_PEER: _LOST_PEER}
_PORT_IN_USE = re.compile(r"Address already in use|EADDRINUSE", re.IGNORECASE)


def _pod_reason(evidence: Evidence) -> Explanation | None:
    """The node says why: no program has to be asked."""
    if evidence.reason == "OOMKilled":
        return Explanation(
            Cause.OUT_OF_MEMORY,
            f"it exceeded its memory limit: {describe_end(evidence.exit_code, evidence.reason)}",
            "raise resources.limits.memory or lower the batch size",
        )
    if advice := _POD_REASONS.get(evidence.reason):
        message = " ".join(evidence.message.split())
        return Explanation(_POD_CAUSES.get(evidence.reason, Cause.POD_FAILED), f"{evidence.reason}: {message}", advice)
    return None


_POD_REASONS = {
    "Evicted": "request the resources that the pod needs, so that the node does not run out of them",
    "Preempting": "give the job a higher priority",
    "NodeLost": "check the node; the job can be run again",
    "DeadlineExceeded": "raise activeDeadlineSeconds of the pod",
    "PortTaken": "stop the program that has the port, or declare another port in the manifest",
    "StartError": "check `command` and the PATH of the image",
    "ContainerCannotRun": "check `command` and the PATH of the image",
    "CreateContainerError": "check the container in the manifest",
}
_POD_CAUSES = {
    "PortTaken": Cause.PORT_IN_USE,
    "StartError": Cause.COMMAND_NOT_FOUND,
    "ContainerCannotRun": Cause.COMMAND_NOT_FOUND,
}


@dataclass(frozen=True, slots=True)
class _Rule:
    """A class of exceptions, recognised by the text of the exception."""

    pattern: re.Pattern[str]
    cause: Cause
    advice: str | Callable[[Evidence, re.Match[str]], str] = ""


_PACKAGES = {
    "PIL": "pillow", "cv2": "opencv-python", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
}  # fmt: skip
"""Packages whose name differs from that of their module."""


def _module_advice(evidence: Evidence, match: re.Match[str]) -> str:
    module = match["module"].partition(".")[0]
    python = f"{evidence.python}, the Python of this pod" if evidence.python else "the Python of this pod"
    package = _PACKAGES.get(module, module)
    install = f"install it with `{evidence.installer} {package}`" if evidence.installer else "install it there"
    return f"module {module} is not installed in {python}: {install} or choose another with --python"


def _syntax_advice(evidence: Evidence, match: re.Match[str]) -> str:
    raised = evidence.exception
    if raised is None or not raised.text[0].startswith(match.group()):
        return "correct the program"
    # Python prints the place, the source and a mark just before the exception, without a traceback for the program.
    lines = evidence.lines[max(raised.raised_line - _PLACE_LINES, 0) : raised.raised_line]
    places = [place for line in lines if (place := _PLACE.search(line.text))]
    return f"correct {places[-1]['file']}, line {places[-1]['line']}" if places else "correct the program"


_PLACE_LINES = 4
_PLACE = re.compile(r'\bFile "(?P<file>[^"\n]{1,500})", line (?P<line>[0-9]{1,9})')
_MISSING = re.compile(r"No such file or directory: b?['\"](?P<path>[^'\"\n]{1,500})['\"]")
_CHECK_FILE = "check the path and the volumes"


def _file_advice(evidence: Evidence, match: re.Match[str]) -> str:
    """Where the program looked for the file, as far as the node tells."""
    found = _MISSING.search(match.string)
    path, directory = found["path"] if found else match.groupdict().get("file", ""), evidence.directory
    if not directory:
        return f"relative paths start in the working directory of the job; {_CHECK_FILE}"
    if path.startswith("/tmp/"):  # noqa: S108 (a path of the program)
        return "pods have a /tmp of their own, except at sandbox plain: keep the file elsewhere, or mount its directory"
    if path.startswith("/") and evidence.missing_image and (directory == "/" or not path.startswith(f"{directory}/")):
        return _image_advice(evidence)
    if not path or path.startswith("/"):
        return f"the working directory is {directory}; {_CHECK_FILE}"
    return f"the program looked for {posixpath.normpath(f'{directory}/{path}')}, because it runs in {directory}"


def _backend_advice(_: Evidence, match: re.Match[str]) -> str:
    """For torch.distributed."""
    if match["name"] != "MPI":
        return "choose a backend that this torch has, such as gloo"
    return "this torch has no MPI: use the backend gloo, or run an MPI program as an MPIJob, in which mpirun starts it"


def _image_advice(evidence: Evidence) -> str:
    return (
        f"image {evidence.missing_image} is not on this machine, whose own files the pod has: build, pull or load the "
        "image with `trainwright image`"
    )


_EXCEPTIONS = (
    _Rule(re.compile(r"No module named '?(?P<module>[\w.]{1,200})'?"), Cause.MISSING_MODULE, _module_advice),
    _Rule(re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b"), Cause.SYNTAX_ERROR, _syntax_advice),
    _Rule(
        re.compile(r"\b(?:No space left on device|Disk quota exceeded|ENOSPC)\b"),
        Cause.DISK_FULL,
        "free space on the disk, or write to a larger volume",
    ),
    _Rule(
        re.compile(r"^(?:\w+\.)*FileNotFoundError\b|\[Errno 2\] No such file or directory"),
        Cause.MISSING_FILE,
        _file_advice,
    ),
    _Rule(
        re.compile(r"^(?:\w+\.)*PermissionError\b|\[Errno 30\]|Read-only file system|\bPermission denied\b"),
        Cause.PERMISSION_DENIED,
        "write to a volume or to the directory of the manifest, and check the owner of the files",
    ),
    _Rule(
        re.compile(
            r"\b(?:401 Client Error|403 Client Error|gated repo|GatedRepoError|Unauthorized|Invalid credentials)"
        ),
        Cause.ACCESS_DENIED,
        "pass a token that has access, such as HF_TOKEN, to the pods: `--env HF_TOKEN`, or a Secret in `env`",
    ),
    _Rule(
        re.compile(r"\bUnpicklingError\b|PytorchStreamReader failed|invalid load key|Weights only load failed"),
        Cause.CHECKPOINT,
        "the checkpoint is damaged or not one of torch: delete it or load an older one",
    ),
    _Rule(
        re.compile(r"Error\(s\) in loading state_dict|SafetensorError"),
        Cause.CHECKPOINT,
        "the checkpoint is of another model: check the model's sizes and names against it",
    ),
    _Rule(
        re.compile(r"CUDA out of memory|CUDNN_STATUS_ALLOC_FAILED|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED"),
        Cause.OUT_OF_MEMORY,
        "the GPU has too little memory: lower the batch size or the size of the model",
    ),
    _Rule(
        re.compile(r"insufficient shared memory|\bshm\b.{0,80}\bBus error|Bus error.{0,200}\bshared memory"),
        Cause.OUT_OF_MEMORY,
        "mount an emptyDir with medium Memory at /dev/shm, or lower num_workers of the DataLoader",
    ),
    _Rule(
        re.compile(r"^(?:\w+\.)*MemoryError\b|can't allocate memory|Cannot allocate memory|std::bad_alloc"),
        Cause.OUT_OF_MEMORY,
        "lower the batch size or the number of DataLoader workers, or give the pod more memory",
    ),
    _Rule(
        re.compile(
            r"Found no NVIDIA driver|not compiled with CUDA|No CUDA GPUs are available"
            r"|CUDA driver version is insufficient"
            r"|Attempting to deserialize object on a CUDA device|no CUDA-capable device|invalid device ordinal"
        ),
        Cause.NO_GPU,
        "request a GPU with resources.limits, or let the program use the CPU where torch.cuda.is_available() is False",
    ),
    _Rule(
        re.compile(r"Distributed package doesn't have (?P<name>\w+) built in"), Cause.MISSING_BACKEND, _backend_advice
    ),
    _Rule(_UNKNOWN_NAME, Cause.UNREACHABLE_PEER, "check the host name, and MASTER_ADDR if the program sets it itself"),
    _Rule(_PORT_IN_USE, Cause.PORT_IN_USE, "stop the program that has the port, or declare another port"),
    _Rule(
        re.compile(r"\bloss\b.{0,40}\bnan\b|\bnan\b.{0,40}\bloss\b|\breturned nan values\b", re.IGNORECASE),
        Cause.NAN,
        "lower the learning rate, clip gradients, and check the data for invalid values",
    ),
    _Rule(re.compile(r"^KeyboardInterrupt\b"), Cause.TERMINATED),
)
_PEER_ADVICE = {
    Cause.LOST_PEER: "see the logs of the other pods",
    Cause.TIMEOUT: "see what the other pods do; if they only need longer, raise the timeout of init_process_group",
    Cause.UNREACHABLE_PEER: "check that the master runs and that MASTER_ADDR and MASTER_PORT are its own",
}


def _exception(evidence: Evidence) -> Explanation | None:
    raised = evidence.exception
    if raised is None:
        return None
    if peer := caused_by_peers(evidence):
        return Explanation(peer, raised.summary, _PEER_ADVICE[peer])
    for text in (raised.text, *reversed(raised.causes)):
        for rule in _EXCEPTIONS:
            if match := rule.pattern.search("\n".join(text)[:_SEARCHED]):
                advice = rule.advice if isinstance(rule.advice, str) else rule.advice(evidence, match)
                return Explanation(rule.cause, _summary(raised, rule.cause, match), advice)
    return Explanation(Cause.EXCEPTION, raised.summary)


_SEARCHED = 4000


def _summary(raised: RaisedException, cause: Cause, match: re.Match[str]) -> str:
    """The exception in one line, and the line of its message that names the cause if that is another one."""
    if cause is Cause.TERMINATED:
        return f"it was interrupted: {raised.summary} (SIGINT)"
    if cause is Cause.PORT_IN_USE:
        return f"its port is in use: {raised.summary}"
    line = next((one for one in match.string.splitlines() if match.group().splitlines()[0] in one), "").strip()
    return raised.summary if not line or line in raised.summary else f"{raised.summary} {line}"[:400]


_CANNOT_OPEN = re.compile(r"can't open file '(?P<file>[^'\n]{1,500})'")
_NO_MODULE_OF_PYTHON = re.compile(
    r"python[\w.]{0,9}: (?:Error while finding module specification for .{1,300}: )?"
    r"No module named '?(?P<module>[\w.]+)"
)
_USAGE_ERROR = re.compile(r"^[\w./ -]{1,200}: error: .{1,500}", re.MULTILINE)
_NOT_FOUND = re.compile(r"^.{0,300}: (?:command )?not found\b.{0,100}|.{0,300}No such file or directory", re.MULTILINE)
_NATIVE_ERROR = re.compile(
    r"terminate called after throwing an instance of '[^'\n]{1,200}'|terminate called without an active exception"
    r"|Fatal Python error: .{1,200}|\*\*\* stack smashing detected \*\*\*|(?:double free|corrupted|malloc\(\)).{1,200}"
    r"|.{0,200}Assertion `.{1,200}' failed|terminating due to uncaught exception of type .{1,200}"
)
_PADDLE_KILLED = re.compile(r"^Container rank \d{1,6} status failed .{0,2000} code -9 log ", re.MULTILINE)
"""paddle.distributed.launch ends with 247 if the program was killed."""


def _output(evidence: Evidence) -> Explanation | None:
    """What programs print when they end without a traceback."""
    text = _tail(evidence.lines)
    code, end = evidence.exit_code, describe_end(evidence.exit_code, evidence.reason)
    if code == 0:
        return Explanation(Cause.EARLY_EXIT, "it ended with exit code 0 while its peers still needed it")
    if match := _CANNOT_OPEN.search(text):
        return Explanation(Cause.MISSING_FILE, f"file {match['file']} was not found", _file_advice(evidence, match))
    if code == 1 and (match := _NO_MODULE_OF_PYTHON.search(text)):
        advice = _module_advice(evidence, match)
        return Explanation(Cause.MISSING_MODULE, f"No module named {match['module']}", advice)
    if code == 127:
        line = _last(_NOT_FOUND, text) or "the command was not found"
        advice = "check the first word of `command` and the PATH of the image"
        if evidence.missing_image:
            advice = _image_advice(evidence)
        return Explanation(Cause.COMMAND_NOT_FOUND, f"{line}: {end}", advice)
    if code == 126:
        advice = "check that the file is executable"
        return Explanation(Cause.COMMAND_NOT_FOUND, f"the command could not be executed: {end}", advice)
    if code == 2 and (line := _last(_USAGE_ERROR, text)):
        return Explanation(Cause.BAD_ARGUMENT, line, "correct the arguments of the program, in a manifest `args`")
    if _PADDLE_KILLED.search(text):
        return Explanation(Cause.KILLED, "SIGKILL ended it", _KILLED_ADVICE)
    return None


_KILLED_ADVICE = "a user killed it, or the kernel did because memory ran out: compare its memory with the machine's"


def _signal(evidence: Evidence) -> Explanation | None:
    name = signal_name(evidence.exit_code)
    if name is None:
        return None
    if name in _CRASHES:
        text = _tail(evidence.lines)
        detail = _last(_NATIVE_ERROR, text)
        summary = f"it crashed in native code: {name}" + (f": {detail}" if detail else "")
        return Explanation(Cause.NATIVE_CRASH, summary, "set PYTHONFAULTHANDLER=1 to see where it crashes")
    if name in _STOPS:
        advice = "a user or another program ended it" if name != "SIGTERM" else "a user or the cluster ended it"
        return Explanation(Cause.TERMINATED, f"{name} ended it", advice)
    return Explanation(Cause.KILLED, f"{name} ended it", _KILLED_ADVICE if name == "SIGKILL" else "")


def _report_of_peers(evidence: Evidence) -> Explanation | None:
    peer = caused_by_peers(evidence)
    if peer is None:
        return None
    line = next((line.text.strip() for line in reversed(evidence.lines) if _PEERS[peer].search(line.text)), "")
    end = describe_end(evidence.exit_code, evidence.reason)
    return Explanation(peer, f"{end}: {line}"[:300] if line else end, _PEER_ADVICE[peer])


_ERROR_LINE = re.compile(r"\b(?:error|fatal|failed|failure|exception|cannot|invalid|abort(?:ed|ing)?)\b", re.IGNORECASE)


def _exit_code(evidence: Evidence) -> Explanation | None:
    if evidence.exit_code is None:
        return None
    end = describe_end(evidence.exit_code, evidence.reason)
    text = [line.text.strip() for line in evidence.lines[-20:] if line.text.strip()]
    if text and _ERROR_LINE.search(text[-1]) and not _is_progress(text[-1]):
        return Explanation(Cause.EXIT_CODE, f"{end}: {text[-1]}"[:300])
    message = " ".join(evidence.message.split())
    return Explanation(Cause.EXIT_CODE, f"{end}: {message}"[:300] if message else end)


def last_lines(lines: Sequence[Line], limit: int) -> list[str]:
    """The last lines without blank ones and without native stack frames, which are many."""
    kept = [line.text.rstrip() for line in lines[-_CHECKED_LINES:] if not _NATIVE_FRAME.match(line.text)]
    return kept[-limit:]


def _tail(lines: Sequence[Line]) -> str:
    return "\n".join(last_lines(lines, 40))


_NATIVE_FRAME = re.compile(r"\s{0,9}(?:frame #\d{1,4}: |@\s{1,9}0x[0-9a-f]|\[bt\] \(|#\d{1,4} +0x[0-9a-f])|\s{0,20}$")


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = [match.group().strip() for match in pattern.finditer(text)]
    return found[-1] if found else ""


def _is_progress(text: str) -> bool:
    reading = read_line(text)
    return reading is not None and (reading.step is not None or reading.epoch is not None)
