"""Which failed pods are replaced, by the restart policy of their role and their exit code, and which failures count."""

from trainwright.engine.children.pod_outcome import exit_code, is_disrupted
from trainwright.engine.children.ranks import Rank
from trainwright.engine.derived_facts import Facts
from trainwright.objects.kinds.pods import Pod

_SIGNALS = 128
"""This exit code and higher ones mean that a signal ended the program. The policy ExitCode restarts such pods."""


def is_replaceable(facts: Facts, rank: Rank, pod: Pod) -> bool:
    replica = facts.job.replicas[rank.role]
    if replica.restart_policy == "ExitCode":
        code = exit_code(pod, replica.container)
        return code is None or code >= _SIGNALS or is_disrupted(pod)
    return replica.restart_policy in {"OnFailure", "Always"}


def is_excused(facts: Facts, pod: Pod) -> bool:
    """True if the failure does not count: the cluster disrupted the pod or, in a group that restarts as one, one of its
    peers."""
    return facts.disrupted or is_disrupted(pod)
