"""The commands that `run` and `logs` suggest, with the flags that select the same cluster and namespace again."""

from dataclasses import dataclass

from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.targets import Target


@dataclass(frozen=True, slots=True)
class Suggestions:
    """`namespace` is that of the context: jobs in another one need a flag."""

    flags: str = ""
    namespace: str = "default"

    @classmethod
    def of(cls, target: Target) -> "Suggestions":
        namespace = "" if target.namespace_flag else target.config.namespace
        return cls(target.flags, namespace)

    def command(self, verb: str, state: JobState) -> str:
        """`trainwright stop digits -n team`"""
        return f"trainwright {verb} {state.name}{self._all_flags(state)}"

    def cp(self, state: JobState) -> str:
        """The command that fetches files of the job's pods, without its arguments."""
        return f"trainwright cp{self._all_flags(state)}"

    def _all_flags(self, state: JobState) -> str:
        return (f" -n {state.namespace}" if state.namespace != self.namespace else "") + self.flags
