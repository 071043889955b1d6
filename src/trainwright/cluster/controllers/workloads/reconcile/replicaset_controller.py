"""Carries out the plans for ReplicaSets, and for ReplicationControllers, which differ in their selector alone."""

from collections.abc import Callable, Sequence
from datetime import datetime

from trainwright.cluster.controllers.workloads.plans.owned_pods import claim_pods
from trainwright.cluster.controllers.workloads.plans.pod_template import render_pod
from trainwright.cluster.controllers.workloads.plans.replicaset_plan import (
    next_availability_check,
    plan_replica_set,
    replica_set_status,
)
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.shared_steps import requeue_after, write_status
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import REPLICA_SETS, REPLICATION_CONTROLLERS, Resource


class ReplicaSetController:
    """`candidates` returns the pods that a ReplicaSet owns or may adopt."""

    def __init__(
        self,
        client: Client,
        sets: Store[Object],
        pods: PodControl,
        candidates: Callable[[Object], Sequence[Pod]],
        now: Callable[[], datetime],
        resource: Resource = REPLICA_SETS,
    ) -> None:
        self._resource = resource
        self._client = client
        self._sets = sets
        self._pods = pods
        self._candidates = candidates
        self._now = now

    async def reconcile(self, replica_set: Object) -> Outcome | None:
        claim = await self._pods.claim(replica_set, self._candidates(replica_set))
        plan = plan_replica_set(replica_set, claim.owned)
        failure = None
        if plan.create:
            template = replica_set["spec"]["template"]
            _, error = await self._pods.create(replica_set, [render_pod(replica_set, template)] * plan.create)
            failure = ("FailedCreate", error) if error else None
        if plan.delete:
            error = await self._pods.delete(replica_set, plan.delete)
            failure = ("FailedDelete", error) if error else None
        owned = claim_pods(replica_set, self._candidates(replica_set)).owned
        status = replica_set_status(replica_set, owned, failure, self._now())
        if self._resource == REPLICATION_CONTROLLERS:
            status.pop("terminatingReplicas", None)
        await write_status(self._client, self._resource, self._sets, replica_set, status)
        if failure is not None:
            return Retry(failure[1])
        return requeue_after(next_availability_check(replica_set, owned, self._now()))
