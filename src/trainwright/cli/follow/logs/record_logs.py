"""The logs of jobs on the embedded cluster, read from the records of its node: every line of every run once.

The files are on this machine, and they stay until the job is deleted. So restarts, clean-up of pods, and stopping the
cluster neither lose nor repeat a line.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from trainwright.api.labels import rank_of
from trainwright.cli.follow.logs.log_source import LogBatch, LogRecord
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cluster.facade import DataDir, RunLog, pod_records
from trainwright.objects.kinds.container_runs import ContainerRun, RunKey
from trainwright.objects.kinds.pods import Pod

_SCAN_SECONDS = 0.5
"""Between two searches for new runs, if no watch reports a change."""


class RecordLogs:
    def __init__(self, data: DataDir, states: Sequence[JobState]) -> None:
        self._data = data
        self._states = states
        self._scan_at = 0.0
        self._open: dict[RunKey, _OpenLog] = {}
        self._known: set[RunKey] = set()

    def pod_changed(self, state: JobState, pod: Pod) -> None:
        _ = state, pod
        self._scan_at = 0.0

    def read(self) -> LogBatch:
        self._scan()
        batch = LogBatch()
        for key, log in list(self._open.items()):
            # The order matters: the last output of a run is in its log before its end is recorded.
            batch.records += log.read()
            if log.ended:
                log.close()
                del self._open[key]
                batch.ended.append(log.run)
        batch.records.sort(key=attrgetter("at"))
        return batch

    def is_complete(self, state: JobState) -> bool:
        self._scan_at = 0.0
        self._scan()
        left = set(state.leftover_pods())
        logs = (log for log in self._open.values() if log.run.owner_uid == state.uid)
        return all(log.ended or log.run.rank in left for log in logs)

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
                for run in record.runs:
                    key = run.key
                    present.add(key)
                    if key not in self._known:
                        self._known.add(key)
                        self._open[key] = _OpenLog(replace(run, rank=rank), RunLog(self._data.node, run))
                    if key in self._open:
                        self._open[key].ended = run.finished_at is not None or record.removed
            for key, log in self._open.items():
                if log.run.owner_uid == state.uid and key not in present:
                    log.ended = True  # the job was deleted, and with it the records; the open files can still be read


class _OpenLog:
    def __init__(self, run: ContainerRun, log: RunLog) -> None:
        self.run = run
        self.ended = False
        self._log = log
        self._last = 0.0

    def read(self) -> list[LogRecord]:
        run, records = self.run, []
        for at, stream, text, partial in self._log.read_new():
            # Lines of one run stay in their order, even if the machine's clock is set back.
            self._last = max(self._last, at)
            records.append(LogRecord(self._last, run, stream, text, partial))
        return records

    def close(self) -> None:
        self._log.close()
