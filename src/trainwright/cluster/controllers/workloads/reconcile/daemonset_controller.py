"""Carries out the plans for DaemonSets."""

from collections.abc import Callable, Iterable

from trainwright.cluster.controllers.scheduler_filters import SchedulableNode
from trainwright.cluster.controllers.workloads.plans.daemonset_plan import (
    daemon_set_status,
    eligible_nodes,
    plan_daemon_set,
    rendered_pod,
)
from trainwright.cluster.controllers.workloads.plans.owned_pods import next_availability_check
from trainwright.cluster.controllers.workloads.plans.pod_template import REVISION_HASH
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.revision_history import HASH, RevisionHistory
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches, requeue_after
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.objects import Object
from trainwright.objects.resources import DAEMON_SETS


class DaemonSetController:
    """`nodes` returns all nodes."""

    def __init__(self, caches: WorkloadCaches, nodes: Callable[[], Iterable[SchedulableNode]]) -> None:
        self._caches = caches
        self._pods = PodControl(caches, "daemonset-controller")
        self._nodes = nodes
        self._history = RevisionHistory(caches.client)

    async def reconcile(self, daemon_set: Object) -> Outcome | None:
        claimed = await self._pods.claim(daemon_set)
        known = await self._history.of(daemon_set)
        update = await self._history.update_revision(daemon_set, known)
        revision = update["metadata"]["labels"][HASH]
        nodes = eligible_nodes(daemon_set, self._nodes())
        plan = plan_daemon_set(daemon_set, claimed, nodes, revision, self._caches.now())
        error = await self._pods.delete(daemon_set, plan.delete) if plan.delete else ""
        template = daemon_set["spec"]["template"]
        rendered = [rendered_pod(daemon_set, node, revision, template) for node in plan.create]
        _, failed = await self._pods.create(daemon_set, rendered)
        owned, now = self._pods.owned(daemon_set), self._caches.now()
        status = daemon_set_status(daemon_set, owned, nodes, revision, now)
        await self._caches.write_status(DAEMON_SETS, daemon_set, status)
        name = daemon_set["metadata"]["name"]
        used = {f"{name}-{pod.metadata.labels.get(REVISION_HASH, '')}" for pod in owned}
        await self._history.prune(daemon_set, known, used | {update["metadata"]["name"]})
        if error or failed:
            return Retry(error or failed)
        return requeue_after(next_availability_check(daemon_set, owned, now))
