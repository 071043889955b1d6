"""The admission review of a job: whether it is allowed, and warnings for the user."""

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
        """Why the job is rejected, in one line; empty if it is allowed."""
        return aggregate(self.errors) if self.errors else ""


def review(kind: Kind, new: Object, old: Object | None = None) -> Admission:
    """Reviews a new job, or the update from `old` to `new`. Never raises, even for malformed objects."""
    return Admission(tuple(validate(new, kind, old)), tuple(warnings(new, kind)))


def warnings(raw: Object, kind: Kind) -> list[str]:
    """Deprecation warnings; none for a job with fields of a wrong type."""
    try:
        return list(deprecations(parse(raw, kind), kind))
    except InvalidJob:
        return []
