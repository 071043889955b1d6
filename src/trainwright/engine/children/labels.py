"""The labels of children. Keys and values are upstream's, because users and other tools select by them."""

from collections.abc import Mapping

from trainwright.api.job import Job
from trainwright.api.kinds import GROUP
from trainwright.api.labels import EARLIER_JOB_NAME, JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE
from trainwright.engine.children.ranks import Rank
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.selectors import format_labels


def has_rank_labels(job: Job, rank: Rank, child: ObjectMeta) -> bool:
    return all(child.labels.get(key) == value for key, value in rank_labels(job, rank).items())


def rank_labels(job: Job, rank: Rank) -> dict[str, str]:
    labels = role_labels(job, rank.role)
    if job.replicas[rank.role].role.indexed:
        labels[REPLICA_INDEX] = str(rank.index)
    return labels


def role_labels(job: Job, role: str) -> dict[str, str]:
    return {OPERATOR_NAME: job.kind.controller, JOB_NAME: job.name, REPLICA_TYPE: role.lower()}


def earlier_labels(job: Job, rank: Rank, *, master: bool) -> dict[str, str]:
    """The labels of earlier operators, which scripts and tutorials still select by.

    The first generation has the framework in every key, the second does not.
    """
    name, role = job.kind.earlier_name, rank.role.lower()
    index = {"replica-index": str(rank.index)} if job.replicas[rank.role].role.indexed else {}
    labels = {"group-name": GROUP, EARLIER_JOB_NAME: job.name, "replica-type": role, **index}
    if master:
        labels["job-role"] = "master"
    if name:
        labels |= {
            "controller-name": f"{name}-operator",
            f"{name}-job-name": job.name,
            f"{name}-replica-type": role,
            **{f"{name}-{key}": value for key, value in index.items()},
        }
        if job.kind.earlier_roles:
            labels[f"{name}-job-role"] = role
        elif master:
            labels[f"{name}-job-role"] = "master"
    return labels


def modern_labels(earlier: Mapping[str, str], *, controller: str) -> dict[str, str]:
    """The current labels of a child that has only those of the second generation."""
    keys = (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX, JOB_ROLE)
    names = {key: key.partition("/")[2] for key in keys}
    return {OPERATOR_NAME: controller} | {key: earlier[name] for key, name in names.items() if name in earlier}


def role_selector(job: Job, role: str) -> str:
    """The label selector of a role's pods, for the scale subresource."""
    return format_labels(role_labels(job, role))
