"""Adds every run that finishes on the embedded cluster to its history, also those that no command follows."""

import logging
from concurrent.futures import ThreadPoolExecutor

from trainwright.api.kinds import Kind
from trainwright.cli.history import append, history_path, run_of
from trainwright.cli.jobs.metrics import recorded_progress
from trainwright.cli.jobs.summary import finished_state, rank_count
from trainwright.cluster.facade import DataDir
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.objects import Object
from trainwright.operator.reconcile.observer import Observer

log = logging.getLogger(__name__)


class RunRecorder(Observer):
    """The operator calls it when it has written a status, and when it knows why a job failed, so that the history and
    `status.failure` say the same. Logs are read in a thread, so that jobs do not wait."""

    def __init__(self, data: DataDir) -> None:
        self._data = data
        # Not the event loop's threads: others may block all of them.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="run-recorder")

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        state = finished_state(after)
        if state and not finished_state(before):
            self._executor.submit(self._record, kind, after, state)

    def failure_diagnosed(self, kind: Kind, job: Object, diagnosis: Diagnosis) -> None:
        self._executor.submit(self._record, kind, job, "Failed", diagnosis.headline)

    def _record(self, kind: Kind, job: Object, state: str, cause: str = "") -> None:
        try:
            metrics = recorded_progress(self._data, job["metadata"]["uid"], kind).metrics
            run = run_of(job, state=state, metrics=metrics, cause=cause, ranks=rank_count(job, kind))
            append(history_path(self._data), run)
        except Exception:
            log.exception("failed to add a run of %s to the history", job["metadata"].get("name"))
