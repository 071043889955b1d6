"""Where the logs of followed jobs come from: the records of the embedded node, or the API of another cluster."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from trainwright.cli.follow.state.job_state import JobState
from trainwright.objects.kinds.container_runs import ContainerRun
from trainwright.objects.kinds.pods import Pod


class LogRecord(NamedTuple):
    """A line of a log, or a piece of one that goes on."""

    at: float
    """Seconds since the epoch."""
    run: ContainerRun
    stream: str
    text: str
    partial: bool


@dataclass(slots=True)
class LogBatch:
    """What was logged since the last batch, in order, and the runs whose logs have been read to their ends."""

    records: list[LogRecord] = field(default_factory=list)
    ended: list[ContainerRun] = field(default_factory=list)


class LogSource(Protocol):
    def pod_changed(self, state: JobState, pod: Pod) -> None:
        """To be called when a watch reports a pod of the job."""

    def read(self) -> LogBatch:
        """The new lines of all runs; every line once."""

    def is_complete(self, state: JobState) -> bool:
        """True if the next call of `read` returns the last lines of the job; pods that outlive it do not count."""

    async def close(self) -> None: ...
