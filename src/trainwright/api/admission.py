"""What an admission webhook answers about a job: whether it may be stored as it is, and what its author should know."""

from dataclasses import dataclass

from trainwright.api.errors import aggregate
from trainwright.api.field_types import shape_errors
from trainwright.api.kinds import Kind
from trainwright.api.legacy import deprecations
from trainwright.api.validation import validate
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError


@dataclass(frozen=True, slots=True)
class Admission:
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.errors

    @property
    def message(self) -> str:
        """Why the job is refused, in one line; empty if it is not."""
        return aggregate(self.errors) if self.errors else ""


def review(kind: Kind, new: Object, old: Object | None = None) -> Admission:
    """The verdict on a new job, or on the change from `old` to `new`. Never raises, whatever the objects hold."""
    return Admission(tuple(validate(new, kind, old)), tuple(warnings(new, kind)))


def warnings(raw: Object, kind: Kind) -> list[str]:
    """What the job should write in another way; nothing for one whose fields have wrong types."""
    return [] if shape_errors(raw, kind) else list(deprecations(raw.get("spec") or {}, kind))
