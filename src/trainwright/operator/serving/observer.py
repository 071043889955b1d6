"""What the operator tells whoever measures it. This one listens to nothing; `Metrics` counts."""

from trainwright.api.kinds import Kind
from trainwright.engine import Transition
from trainwright.kube.controller.outcome import Outcome
from trainwright.objects import Object


class Observer:
    """Each method is called at the moment that it is named after, on the hot path: it must be quick and never raise.

    A transition is told by the process whose status write made it true, after the write succeeded. So it is told once,
    whoever reads the job later.
    """

    def transition(self, kind: Kind, job: Object, step: Transition) -> None:
        """A status that makes this true has been written."""

    def status_written(self, kind: Kind, before: Object, after: Object) -> None:
        """The job as it was read, and as the server answered."""

    def pods_created(self, kind: Kind, job: Object) -> None:
        """All pods that the job's plan lacked have been created."""

    def job_deleted(self, kind: Kind, job: Object) -> None:
        """A job that was looked after has left the cluster, by whoever's hand."""

    def reconciled(self, kind: Kind, outcome: Outcome, seconds: float) -> None:
        """One look at a job has ended."""

    def crashed(self, kind: Kind) -> None:
        """A look at a job has ended in an error of the operator's own."""
