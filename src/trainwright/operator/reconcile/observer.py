"""The hooks that reconciling calls. They do nothing here; `serving.metrics.Metrics` implements those for metrics."""

from trainwright.api.kinds import Kind
from trainwright.engine import Transition
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.kube.controller.outcome import Outcome
from trainwright.objects import Object


class Observer:
    """The hooks are called on the hot path: they must be quick and must not raise.

    `transition` is called by the process that wrote the transition to the job's status, after the write succeeded. So
    it is called once for each transition.
    """

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        """A status with this transition was written."""

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        """A status was written: the job as it was read, and as the server returned it."""

    def failure_diagnosed(self, kind: Kind, job: Object, diagnosis: Diagnosis) -> None:
        """The operator knows why the job failed: what it writes to `status.failure`."""

    def pods_created(self, kind: Kind, job: Object) -> None:
        """All missing pods of the job were created."""

    def job_deleted(self, kind: Kind, job: Object) -> None:
        """A job that this operator manages was deleted."""

    def reconciled(self, kind: Kind, outcome: Outcome, seconds: float) -> None:
        """A reconciliation of a job has ended."""

    def crashed(self, kind: Kind) -> None:
        """A reconciliation has raised an unexpected error."""
