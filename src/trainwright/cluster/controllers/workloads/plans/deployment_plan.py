"""Decides about one Deployment: which ReplicaSets to create, scale and delete, and its status.

The steps and texts are those of upstream's deployment controller. A plan never exceeds `maxSurge`, and takes pods away
only while more than `replicas - maxUnavailable` are available.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction

from trainwright.cluster.controllers.workloads.plans.deployment_status import (
    TIMED_OUT,
    deployment_status,
    has_progress_deadline,
    is_complete,
    progress_check_after,
    rollout_status,
    set_condition,
)
from trainwright.cluster.controllers.workloads.plans.pod_template import same_template, template_hash
from trainwright.cluster.controllers.workloads.plans.rollout_sizes import (
    max_surge,
    max_unavailable,
    new_set_size,
    replicas_of,
)
from trainwright.objects import Object, copied
from trainwright.objects.conditions import find_condition
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.metadata import controller_reference

REVISION = "deployment.kubernetes.io/revision"
HASH_LABEL = "pod-template-hash"
_HISTORY = "deployment.kubernetes.io/revision-history"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MAX = "deployment.kubernetes.io/max-replicas"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COPIED = {REVISION, _HISTORY, _DESIRED, _MAX, _LAST_APPLIED, "deprecated.deployment.rollback.to"}
_LONGEST_HISTORY = 2000
_LONGEST_NAME = 253
_MAX_INT32 = 2**31 - 1


@dataclass(slots=True)
class DeploymentPlan:
    """Writes in the order in which they are made."""

    create: Object | None = None
    update: dict[str, Object] = field(default_factory=dict)
    """By name: the changed ReplicaSets."""
    delete: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    """The messages of ScalingReplicaSet events."""
    deployment: Object | None = None
    """With its new status and revision; None if neither changes."""
    requeue_after: float | None = None


def plan_deployment(
    deployment: Object, replica_sets: Iterable[Object], *, live_pods: Mapping[str, int], now: datetime
) -> DeploymentPlan:
    """`replica_sets` are those that the Deployment owns; `live_pods` counts their unfinished pods by the set's uid."""
    rollout = _Rollout(copied(deployment), [copied(replica_set) for replica_set in replica_sets], live_pods, now)
    status = rollout.run()
    plan, changed = rollout.plan, rollout.deployment | {"status": status}
    if changed != deployment | {"status": deployment.get("status") or {}}:
        plan.deployment = changed
    plan.requeue_after = progress_check_after(changed, now)
    return plan


def collided(deployment: Object) -> Object:
    """The Deployment after another object was found under the name of its new ReplicaSet."""
    status = dict(deployment.get("status") or {})
    status["collisionCount"] = status.get("collisionCount", 0) + 1
    return deployment | {"status": status}


def creation_failed(deployment: Object, name: str, error: str, now: datetime) -> tuple[Object, str]:
    """The Deployment after its new ReplicaSet could not be created, and the message of the event."""
    message = f'Failed to create new replica set "{name}": {error}'
    status = dict(deployment.get("status") or {})
    if has_progress_deadline(deployment):
        set_condition(status, "Progressing", "False", "ReplicaSetCreateError", message, now)
    return deployment | {"status": status}, message


class _Rollout:
    """One reconciliation. The ReplicaSets here are as the plan leaves them."""

    def __init__(self, deployment: Object, sets: list[Object], live_pods: Mapping[str, int], now: datetime) -> None:
        self.deployment = deployment
        self.plan = DeploymentPlan()
        self._status: Object = deployment.get("status") or {}
        self._before = copied(self._status)
        self._live_pods = live_pods
        self._now = now
        self._size = replicas_of(deployment)
        sets.sort(key=_age)
        template = deployment["spec"]["template"]
        self._new = next((known for known in sets if same_template(known["spec"]["template"], template)), None)
        self._old = [replica_set for replica_set in sets if replica_set is not self._new]

    def run(self) -> Object:
        """Plans the writes and returns the new status."""
        if "deletionTimestamp" in self.deployment["metadata"]:
            self._sync_new()
            return self._plain_status()
        self._record_pause()
        self._sync_new()
        if self.deployment["spec"].get("paused"):
            self._scale_all()
            self._delete_history()
            return self._plain_status()
        if self._was_scaled():
            self._scale_all()
            return self._plain_status()
        if self.deployment["spec"]["strategy"]["type"] == "Recreate":
            return self._recreate()
        return self._roll()

    # The two strategies

    def _recreate(self) -> Object:
        active = [replica_set for replica_set in self._old if replicas_of(replica_set)]
        for replica_set in active:
            self._scale(replica_set, 0)
        if active or self._old_pods_run():
            return self._rollout_status()
        self._scale(self._ensure_new(), self._size)
        if is_complete(self.deployment, self._before):
            self._delete_history()
        return self._rollout_status()

    def _roll(self) -> Object:
        new = self._ensure_new()
        if self._scale(new, self._next_new_size(new)) or self._shrink_old(new):
            return self._rollout_status()
        if is_complete(self.deployment, self._before):
            self._delete_history()
        return self._rollout_status()

    def _next_new_size(self, new: Object) -> int:
        if replicas_of(new) >= self._size:
            return self._size
        return new_set_size(self.deployment, total=_total(self._all()), present=replicas_of(new))

    def _shrink_old(self, new: Object) -> bool:
        """Scales old ReplicaSets down as far as availability allows, unhealthy pods first."""
        active = [replica_set for replica_set in self._old if replicas_of(replica_set)]
        least = self._size - max_unavailable(self.deployment)
        new_unavailable = replicas_of(new) - _available(new)
        room = _total(self._all()) - least - new_unavailable
        if not active or room <= 0:
            return False
        unhealthy = self._shrink(active, room, lambda replica_set: replicas_of(replica_set) - _available(replica_set))
        surplus = sum(_available(replica_set) for replica_set in [*active, new]) - least
        return bool(unhealthy + self._shrink(active, surplus, replicas_of))

    def _shrink(self, sets: Sequence[Object], most: int, removable: Callable[[Object], int]) -> int:
        removed = 0
        for replica_set in sets:
            count = min(most - removed, replicas_of(replica_set), max(removable(replica_set), 0))
            if count > 0:
                self._scale(replica_set, replicas_of(replica_set) - count)
                removed += count
        return removed

    def _old_pods_run(self) -> bool:
        if sum((replica_set.get("status") or {}).get("replicas", 0) for replica_set in self._old):
            return True
        new = self._new["metadata"]["uid"] if self._new is not None else None
        return any(count for uid, count in self._live_pods.items() if uid != new)

    # The new ReplicaSet

    def _sync_new(self) -> None:
        """Updates the annotations of the new ReplicaSet and the Deployment's revision."""
        new = self._new
        if new is None:
            return
        changed = self._annotate(new, exists=True)
        wanted = self.deployment["spec"].get("minReadySeconds", 0)
        if changed or new["spec"].get("minReadySeconds", 0) != wanted:
            new["spec"]["minReadySeconds"] = wanted
            self._updated(new)
        self._set_revision(new["metadata"]["annotations"].get(REVISION, ""))
        if has_progress_deadline(self.deployment) and find_condition(self._status, "Progressing") is None:
            message = f'Found new replica set "{new["metadata"]["name"]}"'
            self._set_progress("True", "FoundNewReplicaSet", message)

    def _ensure_new(self) -> Object:
        if self._new is not None:
            return self._new
        self._new = new = self._render_new()
        count = new_set_size(self.deployment, total=_total(self._old), present=0)
        new["spec"]["replicas"] = count
        self._annotate(new, exists=False)
        self.plan.create = new
        name = new["metadata"]["name"]
        if count:
            self.plan.events.append(f"Scaled up replica set {name} from 0 to {count}")
        self._set_revision(new["metadata"]["annotations"][REVISION])
        if has_progress_deadline(self.deployment):
            self._set_progress("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
        return new

    def _render_new(self) -> Object:
        metadata, spec = self.deployment["metadata"], self.deployment["spec"]
        template = copied(spec["template"])
        digest = template_hash(template, self._status.get("collisionCount"))
        labels = template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), HASH_LABEL: digest}
        selector = copied(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
        rendered: Object = {"replicas": 0, "selector": selector, "template": template}
        if spec.get("minReadySeconds"):
            rendered["minReadySeconds"] = spec["minReadySeconds"]
        owner = self.deployment | {"apiVersion": "apps/v1", "kind": "Deployment"}
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{metadata['name'][: _LONGEST_NAME - len(digest) - 1]}-{digest}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "ownerReferences": [controller_reference(owner)],
            },
            "spec": rendered,
        }

    def _annotate(self, new: Object, *, exists: bool) -> bool:
        annotations = new["metadata"].get("annotations") or {}
        before = dict(annotations)
        own = self.deployment["metadata"].get("annotations") or {}
        annotations |= {key: value for key, value in own.items() if key not in _NOT_COPIED}
        known = _revision(new)
        latest = max(map(_revision, self._old), default=0) + 1
        if known < latest:
            annotations[REVISION] = str(latest)
            if known:
                annotations[_HISTORY] = _with_revision(annotations.get(_HISTORY, ""), known)
        if not exists:
            annotations |= self._size_annotations()
        new["metadata"]["annotations"] = annotations
        return annotations != before

    def _set_revision(self, revision: str) -> None:
        self.deployment["metadata"].setdefault("annotations", {})[REVISION] = revision

    # Scaling

    def _was_scaled(self) -> bool:
        """True if `replicas` changed since the ReplicaSets were last scaled."""
        wanted = (_annotated(replica_set, _DESIRED) for replica_set in self._all() if replicas_of(replica_set))
        return any(count is not None and count != self._size for count in wanted)

    def _scale_all(self) -> None:
        """Scales without progress of the rollout: one ReplicaSet to the full size, several in proportion."""
        active = [replica_set for replica_set in self._all() if replicas_of(replica_set)]
        if len(active) <= 1:
            latest = active[0] if active else self._new or next(reversed(self._old), None)
            if latest is not None:
                # Upstream leaves the annotations if the size is right, and then finds a scaling without end.
                self._scale(latest, self._size, annotate=True)
        elif self._is_saturated():
            for replica_set in active:
                if replica_set is not self._new:
                    self._scale(replica_set, 0)
        elif self.deployment["spec"]["strategy"]["type"] == "RollingUpdate":
            self._scale_in_proportion(active)

    def _is_saturated(self) -> bool:
        new = self._new
        return new is not None and replicas_of(new) == _annotated(new, _DESIRED) == _available(new) == self._size

    def _scale_in_proportion(self, active: list[Object]) -> None:
        allowed = self._size + max_surge(self.deployment) if self._size else 0
        missing = allowed - _total(active)
        if missing:  # the largest first; of equal ones the newest grow and the oldest shrink first
            active.sort(key=_age, reverse=missing > 0)
            active.sort(key=replicas_of, reverse=True)
        sizes, added = [], 0
        for replica_set in active:
            share = self._share(replica_set, missing - added) if missing else 0
            sizes.append(replicas_of(replica_set) + share)
            added += share
        if missing:
            sizes[0] = max(sizes[0] + missing - added, 0)
        for replica_set, size in zip(active, sizes, strict=True):
            self._scale(replica_set, size, annotate=True)

    def _share(self, replica_set: Object, left: int) -> int:
        """The part of the missing (or, if negative, surplus) pods that a ReplicaSet gets."""
        if not left:
            return 0
        if not self._size:
            return max(-replicas_of(replica_set), left)
        before = _annotated(replica_set, _MAX) or self._before.get("replicas", 0)
        if not before:
            return 0
        size = Fraction(replicas_of(replica_set) * (self._size + max_surge(self.deployment)), before)
        share = int(size + Fraction(1, 2)) - replicas_of(replica_set)
        return min(share, left) if left > 0 else max(share, left)

    def _scale(self, replica_set: Object, size: int, *, annotate: bool = False) -> bool:
        """Returns whether the size changes. `annotate`: the annotations are updated even if it does not."""
        before = replicas_of(replica_set)
        wanted = self._size_annotations()
        annotations = replica_set["metadata"].get("annotations") or {}
        stale = annotate and not wanted.items() <= annotations.items()
        if before == size and not stale:
            return False
        replica_set["spec"]["replicas"] = size
        replica_set["metadata"]["annotations"] = annotations | wanted
        self._updated(replica_set)
        if before != size:
            direction = "up" if before < size else "down"
            name = replica_set["metadata"]["name"]
            self.plan.events.append(f"Scaled {direction} replica set {name} from {before} to {size}")
        return before != size

    def _size_annotations(self) -> dict[str, str]:
        return {_DESIRED: str(self._size), _MAX: str(self._size + max_surge(self.deployment))}

    def _updated(self, replica_set: Object) -> None:
        if replica_set is not self.plan.create:
            self.plan.update[replica_set["metadata"]["name"]] = replica_set

    def _delete_history(self) -> None:
        limit = self.deployment["spec"].get("revisionHistoryLimit", _MAX_INT32)
        alive = [replica_set for replica_set in self._old if "deletionTimestamp" not in replica_set["metadata"]]
        for replica_set in sorted(alive, key=_revision)[: max(len(alive) - limit, 0)]:
            status, metadata = replica_set.get("status") or {}, replica_set["metadata"]
            observed = metadata.get("generation", 0) <= status.get("observedGeneration", 0)
            if not status.get("replicas") and not replicas_of(replica_set) and observed:
                self.plan.delete.append(metadata["name"])

    # Status

    def _record_pause(self) -> None:
        """Pausing and resuming restart the clock of the progress deadline."""
        known = find_condition(self._status, "Progressing") or {}
        if not has_progress_deadline(self.deployment) or known.get("reason") == TIMED_OUT:
            return
        paused = bool(self.deployment["spec"].get("paused"))
        if paused and known.get("reason") != "DeploymentPaused":
            self._set_progress("Unknown", "DeploymentPaused", "Deployment is paused")
        elif not paused and known.get("reason") == "DeploymentPaused":
            self._set_progress("Unknown", "DeploymentResumed", "Deployment is resumed")

    def _set_progress(self, status: str, reason: str, message: str) -> None:
        set_condition(self._status, "Progressing", status, reason, message, self._now)

    def _plain_status(self) -> Object:
        return deployment_status(self.deployment, self._status, self._all(), self._new, self._now)

    def _rollout_status(self) -> Object:
        status = self._plain_status()
        return rollout_status(self.deployment, self._before, status, self._all(), self._new, self._now)

    def _all(self) -> list[Object]:
        return [*self._old, self._new] if self._new is not None else self._old


def _age(replica_set: Object) -> tuple[str, str]:
    return replica_set["metadata"].get("creationTimestamp") or "9999", replica_set["metadata"]["name"]


def _total(sets: Iterable[Object]) -> int:
    return sum(map(replicas_of, sets))


def _available(replica_set: Object) -> int:
    """Right after scaling down, the status still counts the pods that are about to be deleted."""
    return min(int((replica_set.get("status") or {}).get("availableReplicas", 0)), replicas_of(replica_set))


def _revision(replica_set: Object) -> int:
    return _annotated(replica_set, REVISION) or 0


def _annotated(replica_set: Object, key: str) -> int | None:
    """The number in an annotation; None if it has none."""
    return parse_decimal((replica_set["metadata"].get("annotations") or {}).get(key, ""))


def _with_revision(history: str, revision: int) -> str:
    revisions = [*filter(None, history.split(",")), str(revision)]
    while len(",".join(revisions)) > _LONGEST_HISTORY:
        revisions.pop(0)
    return ",".join(revisions)
