"""What became of one write of a plan."""

from dataclasses import dataclass

from trainwright.engine import JobEvent
from trainwright.kube.controller.outcome import Retry


@dataclass(frozen=True)
class Result:
    """The event that tells of it, if it is worth one, and why it failed, if it did."""

    event: JobEvent | None = None
    failure: Retry | None = None
    final: str | None = None
    """What is wrong with the job, if trying again cannot help."""
