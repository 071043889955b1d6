"""Status writes whose answer was lost: whether the server carried them out can be seen on the job itself.

It matters because what a write makes true is counted and told by the process that wrote it, and by nobody else.
"""

from dataclasses import dataclass

from trainwright.api.pruned_status import FIELDS
from trainwright.engine import Plan
from trainwright.objects import Object


@dataclass(frozen=True)
class Doubt:
    """A status was to be written over that of `job`."""

    job: Object
    status: Object
    plan: Plan


def carried_out(job: Object, status: Object, found: Object) -> bool:
    """Whether `found`, the job as the server has it now, shows the status that was to be written over that of `job`."""
    before, after = job["metadata"], found["metadata"]
    if before["uid"] != after["uid"] or before["resourceVersion"] == after["resourceVersion"]:
        return False
    # Upstream's CRD keeps no field of ours.
    kept_by_upstream = {field: value for field, value in status.items() if field not in FIELDS}
    return found.get("status") in (status, kept_by_upstream)
