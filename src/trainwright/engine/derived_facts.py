"""What follows from the job and the observed state. Immutable: derived once, then read by every policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from trainwright.api.job import Job
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.classification import Children, classify
from trainwright.engine.children.pod_outcome import PodOutcome, is_active, is_disrupted, outcome_of
from trainwright.engine.children.ranks import Rank, parse_indexes
from trainwright.engine.conditions import is_finished
from trainwright.engine.framework import Framework
from trainwright.engine.inherited_ports import inherited_ports
from trainwright.engine.job_annotations import restarts_as_group
from trainwright.engine.observed_state import ExtraView, Observed
from trainwright.engine.settings import Settings
from trainwright.engine.texts import Texts
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod


@dataclass(frozen=True, slots=True)
class PodStates:
    """The pods of a running job by state; empty for a job that is suspended or has finished."""

    active: Mapping[Rank, Pod] = field(default_factory=dict)
    """Running, and neither replaced nor being deleted."""
    failed: Mapping[Rank, Pod] = field(default_factory=dict)
    """Failed pods that are not counted and replaced yet. Pods that failed during a group restart are not included."""
    deleted: Mapping[Rank, Pod] = field(default_factory=dict)
    """Unfinished pods that a user or the cluster deletes."""
    just_completed: frozenset[Rank] = frozenset()
    """Ranks whose success is not recorded in the status yet."""
    completed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By role, the indexes that have succeeded, whether their pods still exist or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    job: Job
    observed: Observed
    settings: Settings
    framework: Framework
    now: datetime
    texts: Texts
    children: Children
    inherited_ports: Mapping[Rank, int]
    """The ports that running pods of an earlier version expect of each rank."""
    group_restart: bool
    """Whether all pods are replaced when one fails."""
    replaced: frozenset[str]
    """UIDs of pods whose restart is counted and that are being deleted."""
    pods: PodStates
    disrupted: bool
    """True if, in a group that restarts as one, a pod was deleted, evicted or lost with its node; its peers are then
    expected to fail."""

    @property
    def addresses(self) -> Addresses:
        return Addresses(self.job, self.inherited_ports, self.settings.cluster_domain)

    @property
    def group_restarting(self) -> bool:
        """True while a group restart is in progress: new pods are created when all old ones are gone."""
        return self.group_restart and bool(self.replaced)

    def find_extra(self, kind: str, name: str) -> ExtraView | None:
        """The observed object of that kind and name, whether the job controls it or not."""
        return next(
            (extra for extra in self.observed.extras if (extra.kind, extra.metadata.name) == (kind, name)), None
        )

    def controls(self, extra: ExtraView) -> bool:
        owner = extra.metadata.controller
        return owner is not None and owner.uid == self.job.metadata.uid


def assess(job: Job, observed: Observed, settings: Settings, framework: Framework, now: datetime) -> Facts:
    status: Object = job.raw.get("status") or {}
    children = classify(job, observed)
    group_restart = restarts_as_group(job, settings)
    replaced = frozenset(status.get("replacedPods") or ())
    pods = PodStates()
    if not (is_finished(status) or job.run_policy.suspend or job.problem):
        restarted = group_restart and bool(replaced) and not (children.pods.controlled or children.pods.orphans)
        if not group_restart or restarted:
            replaced &= {pod.metadata.uid for pod in children.pods.controlled}
        pods = _assess_pods(
            job,
            children,
            recorded=_recorded(job, {} if restarted else status.get("completedIndexes") or {}),
            replaced=replaced,
            group_restarting=group_restart and bool(replaced),
        )
    return Facts(
        job=job,
        observed=observed,
        settings=settings,
        framework=framework,
        now=now,
        texts=framework.texts(job),
        children=children,
        inherited_ports=inherited_ports(job, [*children.pods.controlled, *children.pods.orphans.values()]),
        group_restart=group_restart,
        replaced=replaced,
        pods=pods,
        disrupted=group_restart and _is_disrupted(observed, children, pods),
    )


def _is_disrupted(observed: Observed, children: Children, pods: PodStates) -> bool:
    return (
        bool(pods.deleted)
        or any(map(is_disrupted, pods.failed.values()))
        or any(map(observed.is_unreachable, children.pods.ranked.values()))
    )


def _assess_pods(
    job: Job,
    children: Children,
    *,
    recorded: Mapping[str, frozenset[int]],
    replaced: frozenset[str],
    group_restarting: bool,
) -> PodStates:
    """`recorded` are the indexes that have succeeded according to the status."""
    active: dict[Rank, Pod] = {}
    failed: dict[Rank, Pod] = {}
    deleted: dict[Rank, Pod] = {}
    just_completed: set[Rank] = set()
    completed = {role: set(indexes) for role, indexes in recorded.items()}
    for rank, pod in children.pods.ranked.items():
        is_replaced = pod.metadata.uid in replaced
        if not (is_replaced or group_restarting) and is_active(pod):
            active[rank] = pod
            continue
        outcome = outcome_of(pod)
        if outcome is PodOutcome.NONE or rank.index in recorded[rank.role]:
            continue
        if outcome is PodOutcome.SUCCEEDED:
            if not is_replaced:
                completed[rank.role].add(rank.index)
                if job.replicas[rank.role].role.completes:
                    just_completed.add(rank)
        elif outcome is PodOutcome.DELETED:
            deleted[rank] = pod
        elif not (is_replaced or group_restarting):
            failed[rank] = pod
    return PodStates(
        active,
        failed,
        deleted,
        frozenset(just_completed),
        {role: frozenset(indexes) for role, indexes in completed.items()},
    )


def _recorded(job: Job, indexes: Mapping[str, str]) -> dict[str, frozenset[int]]:
    return {
        role: frozenset(parse_indexes(indexes.get(role, ""), below=replica.count))
        for role, replica in job.replicas.items()
    }
