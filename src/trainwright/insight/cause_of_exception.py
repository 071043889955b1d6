"""The causes of exceptions, recognised by their texts."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.insight.advice_for_cause import backend_advice, file_advice, module_advice, syntax_advice
from trainwright.insight.cause_by_peer import PEER_ADVICE, PORT_IN_USE, UNKNOWN_NAME, caused_by_peers
from trainwright.insight.log_exceptions import RaisedException
from trainwright.insight.process_end import Cause, Explanation, ProcessEnd


@dataclass(frozen=True, slots=True)
class _Rule:
    """A class of exceptions, recognised by the text of the exception."""

    pattern: re.Pattern[str]
    cause: Cause
    advice: str | Callable[[ProcessEnd, re.Match[str]], str] = ""


_EXCEPTIONS = (
    _Rule(re.compile(r"No module named '?(?P<module>[\w.]{1,200})'?"), Cause.MISSING_MODULE, module_advice),
    _Rule(re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b"), Cause.SYNTAX_ERROR, syntax_advice),
    _Rule(
        re.compile(r"\b(?:No space left on device|Disk quota exceeded|ENOSPC)\b"),
        Cause.DISK_FULL,
        "free space on the disk, or write to a larger volume",
    ),
    _Rule(
        re.compile(r"^(?:\w+\.)*FileNotFoundError\b|\[Errno 2\] No such file or directory"),
        Cause.MISSING_FILE,
        file_advice,
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
        re.compile(r"Distributed package doesn't have (?P<name>\w+) built in"), Cause.MISSING_BACKEND, backend_advice
    ),
    _Rule(UNKNOWN_NAME, Cause.UNREACHABLE_PEER, "check the host name, and MASTER_ADDR if the program sets it itself"),
    _Rule(PORT_IN_USE, Cause.PORT_IN_USE, "stop the program that has the port, or declare another port"),
    _Rule(
        re.compile(r"\bloss\b.{0,40}\bnan\b|\bnan\b.{0,40}\bloss\b|\breturned nan values\b", re.IGNORECASE),
        Cause.NAN,
        "lower the learning rate, clip gradients, and check the data for invalid values",
    ),
    _Rule(re.compile(r"^KeyboardInterrupt\b"), Cause.TERMINATED),
)


def explain_exception(ended: ProcessEnd) -> Explanation | None:
    raised = ended.exception
    if raised is None:
        return None
    if peer := caused_by_peers(ended):
        return Explanation(peer, raised.summary, PEER_ADVICE[peer])
    for text in (raised.text, *reversed(raised.causes)):
        for rule in _EXCEPTIONS:
            if match := rule.pattern.search("\n".join(text)[:_SEARCHED]):
                advice = rule.advice if isinstance(rule.advice, str) else rule.advice(ended, match)
                return Explanation(rule.cause, _summary(raised, rule.cause, match), advice)
    return Explanation(Cause.EXCEPTION, raised.summary)


_SEARCHED = 4000


def _summary(raised: RaisedException, cause: Cause, match: re.Match[str]) -> str:
    """The exception in one line, and the line of its message that names the cause if that is another one."""
    if cause is Cause.TERMINATED:
        return f"it was interrupted: {raised.summary} (SIGINT)"
    if cause is Cause.PORT_IN_USE:
        return f"its port is in use: {raised.summary}"
    line = next((line for line in match.string.splitlines() if match.group().splitlines()[0] in line), "").strip()
    return raised.summary if not line or line in raised.summary else f"{raised.summary} {line}"[:400]
