"""Why one process failed: the class of the cause, the cause in one line and what to do, from its end and its log."""

import re
from collections.abc import Sequence
from dataclasses import replace

from trainwright.insight.advice_for_cause import KILLED_ADVICE, command_advice, file_advice, module_advice
from trainwright.insight.cause_by_peer import PEER_ADVICE, PEERS, caused_by_peers
from trainwright.insight.cause_of_exception import explain_exception
from trainwright.insight.log_exceptions import RaisedException
from trainwright.insight.process_end import (
    CHECKED_LINES,
    Cause,
    Explanation,
    ProcessEnd,
    describe_end,
    is_progress,
    signal_name,
    tail,
)
from trainwright.objects.kinds.container_runs import Line


def explain(ended: ProcessEnd) -> Explanation:
    """Never raises, and always has a summary."""
    for rule in (_pod_reason, explain_exception, _output, _report_of_peers, _signal, _exit_code):
        if found := rule(ended):
            break
    else:
        found = Explanation(Cause.UNKNOWN, "")
    # It may quote what the program wrote: control characters have no place in an event.
    summary = " ".join(_CONTROL.sub(" ", found.summary).split())
    return replace(found, summary=summary or describe_end(ended.exit_code, ended.reason))


def decisive_exception(
    exceptions: Sequence[RaisedException], lines: Sequence[Line], exit_code: int | None
) -> RaisedException | None:
    """The exception that ended the program: the last one, unless the program kept training after it."""
    if not exceptions or exit_code == 0:
        return None
    last = exceptions[-1]
    after = lines[last.raised_line + 1 :]
    if any(_is_later(line, last) and is_progress(line.text) for line in after[:CHECKED_LINES]):
        return None
    if signal_name(exit_code) in _CRASHES - {"SIGABRT"} and len(after) > _NEAR_LINES:
        return None
    return last


def _is_later(line: Line, raised: RaisedException) -> bool:
    """False for the lines of its message."""
    return line.at is None or raised.at is None or line.at > raised.at + _MESSAGE_SECONDS


_MESSAGE_SECONDS = 0.5
_CONTROL = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|[\x00-\x1f\x7f-\x9f]")
_NEAR_LINES = 30
_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGFPE", "SIGTRAP", "SIGSYS"})
_STOPS = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"})


def _pod_reason(ended: ProcessEnd) -> Explanation | None:
    """The node says why: no program has to be asked."""
    if ended.reason == "OOMKilled":
        return Explanation(
            Cause.OUT_OF_MEMORY,
            f"it exceeded its memory limit: {describe_end(ended.exit_code, ended.reason)}",
            "raise resources.limits.memory or lower the batch size",
        )
    if advice := _POD_REASONS.get(ended.reason):
        message = " ".join(ended.run.message.split())
        cause = _POD_CAUSES.get(ended.reason, Cause.POD_FAILED)
        if cause is Cause.COMMAND_NOT_FOUND:
            advice = command_advice(ended, message, otherwise=advice)
        return Explanation(cause, f"{ended.reason}: {message}", advice)
    return None


NODE_STOPPED = "ContainerStatusUnknown"
"""The reason of a container that ran when the embedded cluster or its machine stopped."""
_POD_REASONS = {
    "Evicted": "request the resources that the pod needs, so that the node does not run out of them",
    "Preempting": "give the job a higher priority",
    "NodeLost": "check the node; the job can be run again",
    "DeadlineExceeded": "raise activeDeadlineSeconds of the pod",
    "StartError": "check `command` and the PATH of the image",
    "ContainerCannotRun": "check `command` and the PATH of the image",
    "CreateContainerError": "check the container in the manifest",
    NODE_STOPPED: "run the job again; with restartPolicy OnFailure it starts again by itself",
}
_POD_CAUSES = {
    "StartError": Cause.COMMAND_NOT_FOUND,
    "ContainerCannotRun": Cause.COMMAND_NOT_FOUND,
    NODE_STOPPED: Cause.TERMINATED,
}


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


def _output(ended: ProcessEnd) -> Explanation | None:
    """What programs print when they end without a traceback."""
    text = tail(ended.lines)
    code, end = ended.exit_code, describe_end(ended.exit_code, ended.reason)
    if code == 0:
        return Explanation(Cause.EARLY_EXIT, "it ended with exit code 0 while its peers still needed it")
    if match := _CANNOT_OPEN.search(text):
        return Explanation(Cause.MISSING_FILE, f"file {match['file']} was not found", file_advice(ended, match))
    if code == 1 and (match := _NO_MODULE_OF_PYTHON.search(text)):
        advice = module_advice(ended, match)
        return Explanation(Cause.MISSING_MODULE, f"No module named {match['module']}", advice)
    if code == 127:
        line = _last(_NOT_FOUND, text) or "the command was not found"
        advice = command_advice(ended, line, "check the first word of `command` and the PATH of the image")
        return Explanation(Cause.COMMAND_NOT_FOUND, f"{line}: {end}", advice)
    if code == 126:
        advice = "check that the file is executable"
        return Explanation(Cause.COMMAND_NOT_FOUND, f"the command could not be executed: {end}", advice)
    if code == 2 and (line := _last(_USAGE_ERROR, text)):
        return Explanation(Cause.BAD_ARGUMENT, line, "correct the arguments of the program, in a manifest `args`")
    if _PADDLE_KILLED.search(text):
        return Explanation(Cause.KILLED, "SIGKILL ended it", KILLED_ADVICE)
    return None


def _signal(ended: ProcessEnd) -> Explanation | None:
    name = signal_name(ended.exit_code)
    if name is None:
        return None
    if name in _CRASHES:
        text = tail(ended.lines)
        detail = _last(_NATIVE_ERROR, text)
        summary = f"it crashed in native code: {name}" + (f": {detail}" if detail else "")
        return Explanation(Cause.NATIVE_CRASH, summary, "set PYTHONFAULTHANDLER=1 to see where it crashes")
    if name in _STOPS:
        advice = "a user or another program ended it" if name != "SIGTERM" else "a user or the cluster ended it"
        return Explanation(Cause.TERMINATED, f"{name} ended it", advice)
    return Explanation(Cause.KILLED, f"{name} ended it", KILLED_ADVICE if name == "SIGKILL" else "")


def _report_of_peers(ended: ProcessEnd) -> Explanation | None:
    peer = caused_by_peers(ended)
    if peer is None:
        return None
    line = next((line.text.strip() for line in reversed(ended.lines) if PEERS[peer].search(line.text)), "")
    end = describe_end(ended.exit_code, ended.reason)
    return Explanation(peer, f"{end}: {line}"[:300] if line else end, PEER_ADVICE[peer])


_ERROR_LINE = re.compile(r"\b(?:error|fatal|failed|failure|exception|cannot|invalid|abort(?:ed|ing)?)\b", re.IGNORECASE)


def _exit_code(ended: ProcessEnd) -> Explanation | None:
    if ended.exit_code is None:
        return None
    end = describe_end(ended.exit_code, ended.reason)
    text = [line.text.strip() for line in ended.lines[-20:] if line.text.strip()]
    if text and _ERROR_LINE.search(text[-1]) and not is_progress(text[-1]):
        return Explanation(Cause.EXIT_CODE, f"{end}: {text[-1]}"[:300])
    message = " ".join(ended.run.message.split())
    return Explanation(Cause.EXIT_CODE, f"{end}: {message}"[:300] if message else end)


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = [match.group().strip() for match in pattern.finditer(text)]
    return found[-1] if found else ""
