"""The history of runs: a line of JSON for each run that has finished, kept when its job is run again or deleted.

The embedded cluster keeps it in its data directory; for other clusters it is in the user's state directory, one file
for each context. Several processes may add the same run: the record with more metrics replaces the other one.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from trainwright.cli.targets import Target
from trainwright.cluster.facade import ClusterError, DataDir, check_private_file
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.times import format_time

_FIRST_METRICS = tuple(f"{part}{name}" for part in ("", "val_", "test_", "eval_") for name in ("accuracy", "loss"))
_MAX_BYTES = 2**20
_KEPT_RUNS = 1000
"""How many runs are kept when the file has become larger than _MAX_BYTES."""


class RunRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """One run of a job. A job that is run again has another uid."""

    uid: str
    job: str
    namespace: str
    kind: str
    state: str
    """`Succeeded`, `Failed` or `Deleted`."""
    started: str = ""
    finished: str = ""
    ranks: int = 0
    metrics: dict[str, float | None] = {}
    """The last value of each metric; None if it was not a finite number."""
    cause: str = ""
    """Why it failed, in one line."""


def run_of(
    job: Object,
    *,
    state: str,
    metrics: Mapping[str, float] | None = None,
    cause: str = "",
    ranks: int = 0,
    now: datetime | None = None,
) -> RunRecord:
    """A run that has ended. `job` is the job as it was last seen, `cause` the diagnosis in one line."""
    metadata = job["metadata"]
    return RunRecord(
        uid=metadata["uid"],
        job=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        kind=job["kind"],
        state=state,
        started=value_at(job, "status", "startTime", default=metadata.get("creationTimestamp") or ""),
        finished=value_at(job, "status", "completionTime", default=format_time(now or datetime.now(UTC))),
        ranks=ranks,
        metrics=dict(metrics or {}),
        cause=cause,
    )


def history_file(target: Target, environment: Mapping[str, str] = os.environ) -> Path:
    """The embedded cluster's file in its data directory, or that of a context in $XDG_STATE_HOME/trainwright."""
    if target.data is not None:
        return history_path(target.data)
    configured = Path(environment.get("XDG_STATE_HOME", ""))
    base = configured if configured.is_absolute() else Path.home() / ".local" / "state"
    return base / "trainwright" / "history" / f"{re.sub(r'[^A-Za-z0-9._-]', '_', target.config.context)}.jsonl"


def history_path(data: DataDir) -> Path:
    return data.path / "history.jsonl"


def append(file: Path, run: RunRecord) -> None:
    """Adds a run as a whole, or not at all: on a full disk the runs before it stay.

    A history that cannot be written is not an error of the command that followed the job.
    """
    # The disk is full, the file system has no locks, or the directory is that of another user.
    with contextlib.suppress(OSError, ClusterError):
        check_private_file(file)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(file) as descriptor:
            if os.fstat(descriptor).st_size > _MAX_BYTES:
                with contextlib.suppress(OSError):  # no space for the smaller file beside it
                    _shrink(file, descriptor, run)
                    return
            _append_line(descriptor, run)


def read_history(file: Path) -> list[RunRecord]:
    """All runs, the earliest first. Lines that cannot be read are skipped: a crash may have cut the last one."""
    try:
        content = file.read_bytes()
    except OSError:
        return []
    return _merged(content)


def metrics_text(metrics: Mapping[str, float | None]) -> str:
    """`accuracy=0.9832 loss=0.0177`"""
    return " ".join(f"{name}={metric_text(metrics[name])}" for name in in_order(metrics))


def in_order(names: Iterable[str]) -> list[str]:
    """The names of metrics, the well-known ones first, then those that the program chose itself."""
    given = list(names)
    return [name for name in _FIRST_METRICS if name in given] + [name for name in given if name not in _FIRST_METRICS]


def metric_text(value: float | None) -> str:
    if value is None:
        return "nan"
    return f"{value:.4f}" if 0.001 <= abs(value) < 10_000 or value == 0 else f"{value:.3g}"


def _merged(content: bytes) -> list[RunRecord]:
    runs: dict[str, RunRecord] = {}
    for line in content.splitlines():
        try:
            run = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        runs[run.uid] = _better(runs[run.uid], run) if run.uid in runs else run
    return sorted(runs.values(), key=lambda run: run.started)


def _better(one: RunRecord, other: RunRecord) -> RunRecord:
    """A finished job that is deleted later stays finished; the record that knows more metrics wins."""
    state = one.state if other.state == "Deleted" else other.state
    finished = one.finished if other.state == "Deleted" else other.finished
    metrics = other.metrics if len(other.metrics) >= len(one.metrics) else one.metrics
    cause = other.cause or one.cause
    ranks = other.ranks or one.ranks
    return msgspec.structs.replace(other, state=state, finished=finished, metrics=metrics, cause=cause, ranks=ranks)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[int]:
    """A descriptor of the file that is locked, and that no other process has replaced meanwhile."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if file.exists() and os.path.samestat(file.stat(), os.fstat(descriptor)):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _append_line(descriptor: int, run: RunRecord) -> None:
    size = os.fstat(descriptor).st_size
    # A line that a crash has cut must not swallow this one.
    begin = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
    line = begin + msgspec.json.encode(run) + b"\n"
    try:
        written = os.write(descriptor, line)
    except OSError:
        written = 0
    if written < len(line):
        os.ftruncate(descriptor, size)


def _shrink(file: Path, descriptor: int, run: RunRecord) -> None:
    """Replaces the file by one with the last runs and this one, once that is on the disk. The lock is held."""
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0) + b"\n" + msgspec.json.encode(run)
    smaller = file.with_name(f"{file.name}.new")
    try:
        smaller.write_bytes(b"".join(msgspec.json.encode(kept) + b"\n" for kept in _merged(content)[-_KEPT_RUNS:]))
        smaller.chmod(0o600)
        smaller.replace(file)
    except OSError:
        smaller.unlink(missing_ok=True)
        raise


_decoder = msgspec.json.Decoder(RunRecord)
