"""The answer of an admission webhook about a job: whether it may be stored, and warnings for its author."""

from dataclasses import dataclass

from trainwright.api.errors import InvalidJob, aggregate
from trainwright.api.kinds import Kind
from trainwright.api.legacy import deprecations
from trainwright.api.parsing import parse
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
    """Deprecation warnings; none for a job whose fields have wrong types."""
    try:
        return list(deprecations(parse(raw, kind), kind))
    except InvalidJob:
        return []
