"""Carries out the plans for ReplicaSets."""

from trainwright.cluster.controllers.workloads.plans.owned_pods import next_availability_check
from trainwright.cluster.controllers.workloads.plans.pod_template import render_pod
from trainwright.cluster.controllers.workloads.plans.replicaset_plan import plan_replica_set, replica_set_status
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches, requeue_after
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.objects import Object
from trainwright.objects.resources import REPLICA_SETS


class ReplicaSetController:
    def __init__(self, caches: WorkloadCaches) -> None:
        self._caches = caches
        self._pods = PodControl(caches, "replicaset-controller")

    async def reconcile(self, replica_set: Object) -> Outcome | None:
        plan = plan_replica_set(replica_set, await self._pods.claim(replica_set))
        failure = None
        if plan.create:
            template = replica_set["spec"]["template"]
            _, error = await self._pods.create(replica_set, [render_pod(replica_set, template)] * plan.create)
            failure = ("FailedCreate", error) if error else None
        if plan.delete:
            error = await self._pods.delete(replica_set, plan.delete)
            failure = ("FailedDelete", error) if error else None
        owned, now = self._pods.owned(replica_set), self._caches.now()
        status = replica_set_status(replica_set, owned, failure, now)
        await self._caches.write_status(REPLICA_SETS, replica_set, status)
        if failure is not None:
            return Retry(failure[1])
        return requeue_after(next_availability_check(replica_set, owned, now))
