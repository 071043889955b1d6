"""Carries out the plans for StatefulSets."""

from contextlib import suppress

from trainwright.cluster.controllers.workloads.plans.pod_template import REVISION_HASH
from trainwright.cluster.controllers.workloads.plans.statefulset_plan import (
    Revisions,
    ordinal_of,
    plan_stateful_set,
    rendered_claims,
    rendered_pod,
    stateful_set_status,
)
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.revision_history import RevisionHistory, template_of
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches, requeue_after
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS

_COMPONENT = "statefulset-controller"
_MOST_ROUNDS = 20
_SUCCESSFUL = "Pod {pod} in StatefulSet {owner} successful"
_FAILED = "Pod {pod} in StatefulSet {owner} failed error: {error}"


class StatefulSetController:
    def __init__(self, caches: WorkloadCaches) -> None:
        self._caches = caches
        self._pods = PodControl(
            caches,
            _COMPONENT,
            created=f"Create {_SUCCESSFUL}",
            deleted=f"Delete {_SUCCESSFUL}",
            not_created=f"Create {_FAILED}",
            not_deleted=f"Delete {_FAILED}",
        )
        self._history = RevisionHistory(caches.client)

    async def reconcile(self, stateful_set: Object) -> Outcome | None:
        await self._pods.claim(stateful_set)
        known = await self._history.of(stateful_set)
        update = await self._history.update_revision(stateful_set, known)
        by_name = {revision["metadata"]["name"]: revision for revision in (*known, update)}
        revisions = _revisions(stateful_set, by_name, update["metadata"]["name"])
        error, wait = "", None
        for _ in range(_MOST_ROUNDS):
            plan = plan_stateful_set(stateful_set, self._owned(stateful_set), revisions, self._caches.now())
            wait = plan.wait
            if plan.delete:
                error = await self._pods.delete(stateful_set, plan.delete)
            for ordinal in plan.create:
                error = error or await self._create(stateful_set, ordinal, by_name, revisions)
            if error or not (plan.create or plan.delete):
                break
        owned = self._owned(stateful_set)
        status = stateful_set_status(stateful_set, list(owned.values()), revisions, self._caches.now())
        await self._caches.write_status(STATEFUL_SETS, stateful_set, status)
        used = {pod.metadata.labels.get(REVISION_HASH, "") for pod in owned.values()}
        await self._history.prune(stateful_set, known, used | {status["currentRevision"], status["updateRevision"]})
        if error:
            return Retry(error)
        return requeue_after(wait or None)

    def _owned(self, stateful_set: Object) -> dict[int, Pod]:
        name = stateful_set["metadata"]["name"]
        numbered = ((ordinal_of(name, pod), pod) for pod in self._pods.owned(stateful_set))
        return {ordinal: pod for ordinal, pod in numbered if ordinal is not None}

    async def _create(self, stateful_set: Object, ordinal: int, known: dict[str, Object], revisions: Revisions) -> str:
        spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
        for claim in rendered_claims(stateful_set, ordinal):
            with suppress(AlreadyExists):
                await self._caches.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
                self._caches.recorder.record(
                    stateful_set,
                    "Normal",
                    "SuccessfulCreate",
                    f"Create Claim {claim['metadata']['name']} Pod {name}-{ordinal} in StatefulSet {name} success",
                    component=_COMPONENT,
                )
        start = (spec.get("ordinals") or {}).get("start", 0)
        partition = (spec["updateStrategy"].get("rollingUpdate") or {}).get("partition", 0)
        revision = revisions.current if ordinal < start + partition else revisions.update
        pod = rendered_pod(stateful_set, ordinal, template_of(known[revision]), revision)
        _, error = await self._pods.create(stateful_set, [pod])
        return error


def _revisions(stateful_set: Object, known: dict[str, Object], update: str) -> Revisions:
    current = (stateful_set.get("status") or {}).get("currentRevision", "")
    return Revisions(current if current in known else update, update)
