"""Carries out the plans for Deployments."""

from trainwright.cluster.controllers.workloads.plans.deployment_plan import (
    DeploymentPlan,
    collided,
    creation_failed,
    plan_deployment,
)
from trainwright.cluster.controllers.workloads.plans.pod_template import same_template
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, is_namespace_terminating
from trainwright.kube.controller.outcome import Outcome, RequeueAfter, Retry
from trainwright.kube.controller.store import raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import DEPLOYMENTS, REPLICA_SETS
from trainwright.objects.selectors import read_label_selector

_COMPONENT = "deployment-controller"


class DeploymentController:
    def __init__(self, caches: WorkloadCaches) -> None:
        self._caches = caches
        self._client = caches.client
        self._sets = caches.stores[REPLICA_SETS.kind]
        self._recorder = caches.recorder

    async def reconcile(self, deployment: Object) -> Outcome | None:
        owned = await self._claim(deployment)
        plan = plan_deployment(deployment, owned, live_pods=self._caches.live_pods(owned), now=self._caches.now())
        if plan.create is not None and not await self._create(deployment, plan.create):
            return Retry("the new ReplicaSet was not created")
        for changed in plan.update.values():
            self._sets.remember(await self._client.replace(REPLICA_SETS, changed))
        for message in plan.events:
            self._recorder.record(deployment, "Normal", "ScalingReplicaSet", message, component=_COMPONENT)
        await self._delete(deployment, plan)
        if plan.deployment is not None:
            await self._write(plan.deployment)
        return None if plan.requeue_after is None else RequeueAfter(plan.requeue_after)

    async def _claim(self, deployment: Object) -> list[Object]:
        """The ReplicaSets of the Deployment, after adopting those that its selector matches and nothing controls, and
        releasing those that it does not match any more."""
        uid = deployment["metadata"]["uid"]
        deleted = "deletionTimestamp" in deployment["metadata"]
        selector = read_label_selector(deployment["spec"]["selector"])
        owned = []
        for replica_set in self._caches.sets_for(deployment):
            metadata = replica_set["metadata"]
            references = metadata.get("ownerReferences") or []
            controller = next((reference for reference in references if reference.get("controller")), None)
            matches = selector.matches(metadata.get("labels") or {})
            if controller is not None and controller["uid"] == uid and matches:
                owned.append(replica_set)
            elif controller is not None and controller["uid"] == uid and not deleted:
                await self._set_owners(replica_set, [other for other in references if other is not controller])
            elif controller is None and matches and not deleted and "deletionTimestamp" not in metadata:
                owned.append(await self._set_owners(replica_set, [*references, controller_reference(deployment)]))
        return owned

    async def _set_owners(self, replica_set: Object, references: list[Object]) -> Object:
        changed = replica_set | {"metadata": replica_set["metadata"] | {"ownerReferences": references}}
        changed = await self._client.replace(REPLICA_SETS, changed)
        self._sets.remember(changed)
        return changed

    async def _create(self, deployment: Object, rendered: Object) -> bool:
        name = rendered["metadata"]["name"]
        try:
            self._sets.remember(await self._client.create(REPLICA_SETS, rendered))
        except AlreadyExists:
            await self._resolve_collision(deployment, rendered)
            return False
        except ApiError as error:
            if not is_namespace_terminating(error):
                failed, message = creation_failed(deployment, name, str(error), self._caches.now())
                self._recorder.record(deployment, "Warning", "ReplicaSetCreateError", message, component=_COMPONENT)
                if failed != deployment:
                    await self._write(failed)
            return False
        return True

    async def _resolve_collision(self, deployment: Object, rendered: Object) -> None:
        """Another ReplicaSet has the name: our own that the watch has not shown yet, or one with another template."""
        metadata = rendered["metadata"]
        present = await self._client.get(REPLICA_SETS, metadata["name"], namespace=metadata["namespace"])
        owner, template = raw_metadata(present).controller, rendered["spec"]["template"]
        ours = owner is not None and owner.uid == deployment["metadata"]["uid"]
        if ours and same_template(present["spec"]["template"], template):
            self._sets.remember(present)
        else:
            await self._write(collided(deployment))

    async def _delete(self, deployment: Object, plan: DeploymentPlan) -> None:
        for name in plan.delete:
            try:
                await self._client.delete(REPLICA_SETS, name, namespace=deployment["metadata"]["namespace"])
            except NotFound:
                continue

    async def _write(self, deployment: Object) -> None:
        """Writes the status, and the annotation with the revision."""
        changed = await self._client.replace(DEPLOYMENTS, deployment, subresource="status")
        self._caches.stores[DEPLOYMENTS.kind].remember(changed)
