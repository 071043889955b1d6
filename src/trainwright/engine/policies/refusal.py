"""A job that cannot be run as it is written fails, and says on itself which field is wrong."""

from trainwright.engine.conditions import FAILED
from trainwright.engine.draft import Draft


def refuse(draft: Draft) -> None:
    kind, problem = draft.job.kind.name, draft.job.problem
    draft.finish(
        FAILED, word="FailedValidation", message=f"{kind} failed validation because {problem}", event="Warning"
    )
