"""The logs of jobs on the embedded cluster, read from the records of its node: every line of every run once.

The files are on this machine, and they stay until the job is deleted. So restarts, clean-up of pods, and stopping the
cluster neither lose nor repeat a line.
"""

import time
from collections.abc import Sequence
from operator import attrgetter

from trainwright.api.labels import rank_of
from trainwright.cli.follow.logs.log_source import LogBatch, LogRecord
from trainwright.cli.follow.state.job_state import JobState, Run
from trainwright.cluster.facade import ContainerRun, DataDir, PodRecord, RunLog, pod_records
from trainwright.objects.kinds.pods import Pod

_SCAN_SECONDS = 0.5
"""Between two searches for new runs, if no watch reports a change."""


class RecordLogs:
    def __init__(self, data: DataDir, states: Sequence[JobState]) -> None:
        self._data = data
        self._states = states
        self._scan_at = 0.0
        self._open: dict[Run, _OpenLog] = {}
        self._known: set[Run] = set()

    def pod_changed(self, state: JobState, pod: Pod) -> None:
        _ = state, pod
        self._scan_at = 0.0

    def read(self) -> LogBatch:
        self._scan()
        batch = LogBatch()
        for run, log in list(self._open.items()):
            # The order matters: the last output of a run is in its log before its end is recorded.
            batch.records += log.read()
            if log.ended:
                log.close()
                del self._open[run]
                batch.ended.append(run)
        batch.records.sort(key=attrgetter("at"))
        return batch

    def is_complete(self, state: JobState) -> bool:
        self._scan_at = 0.0
        self._scan()
        left = set(state.leftover_pods())
        return all(log.ended or run.rank in left for run, log in self._open.items() if run.job_uid == state.uid)

    async def close(self) -> None:
        for log in self._open.values():
            log.close()
        self._open.clear()

    def _scan(self) -> None:
        """Opens the logs of runs that have started since the last scan, and notices which runs have ended."""
        now = time.monotonic()
        if now < self._scan_at:
            return
        self._scan_at = now + _SCAN_SECONDS
        for state in self._states:
            records = pod_records(self._data, state.uid)
            state.update_records(records)
            present = set()
            for record in records:
                rank = rank_of(record.labels, record.name)
                for container_run in record.runs:
                    run = Run(
                        state.uid, record.uid, rank, container_run.container, container_run.init, container_run.number
                    )
                    present.add(run)
                    self._open_or_update(run, record, container_run)
            for run, log in self._open.items():
                if run.job_uid == state.uid and run not in present:
                    log.ended = True  # the job was deleted, and with it the records; the open files can still be read

    def _open_or_update(self, run: Run, record: PodRecord, container_run: ContainerRun) -> None:
        if run not in self._known:
            self._known.add(run)
            self._open[run] = _OpenLog(run, RunLog(record, container_run))
        if run in self._open:
            self._open[run].ended = container_run.finished_at is not None or record.removed


class _OpenLog:
    def __init__(self, run: Run, log: RunLog) -> None:
        self.ended = False
        self._run = run
        self._log = log
        self._last = 0.0

    def read(self) -> list[LogRecord]:
        run, records = self._run, []
        for at, stream, text, partial in self._log.read_new():
            # Lines of one run stay in their order, even if the machine's clock is set back.
            self._last = max(self._last, at)
            records.append(LogRecord(self._last, run, stream, text, partial))
        return records

    def close(self) -> None:
        self._log.close()
