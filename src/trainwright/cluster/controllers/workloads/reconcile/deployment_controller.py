"""Carries out the plans for Deployments."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from trainwright.cluster.controllers.workloads.plans.deployment_plan import (
    DeploymentPlan,
    collided,
    creation_failed,
    plan_deployment,
)
from trainwright.cluster.controllers.workloads.plans.pod_template import same_template
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Outcome, RequeueAfter, Retry
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import DEPLOYMENTS, REPLICA_SETS
from trainwright.objects.selectors import read_label_selector

_COMPONENT = "deployment-controller"


class DeploymentController:
    """`candidates` returns the ReplicaSets that a Deployment owns or may adopt; `live_pods` counts the unfinished pods
    of ReplicaSets by uid."""

    def __init__(
        self,
        client: Client,
        deployments: Store[Object],
        sets: Store[Object],
        recorder: EventRecorder,
        candidates: Callable[[Object], Sequence[Object]],
        live_pods: Callable[[Sequence[Object]], Mapping[str, int]],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._deployments = deployments
        self._sets = sets
        self._recorder = recorder
        self._candidates = candidates
        self._live_pods = live_pods
        self._now = now

    async def reconcile(self, deployment: Object) -> Outcome | None:
        owned = await self._claim(deployment)
        plan = plan_deployment(deployment, owned, live_pods=self._live_pods(owned), now=self._now())
        if plan.create is not None and not await self._create(deployment, plan.create):
            return Retry("the new ReplicaSet was not created")
        for changed in plan.update.values():
            self._sets.remember(await self._client.replace(REPLICA_SETS, changed))
        for message in plan.events:
            self._recorder.record(deployment, "Normal", "ScalingReplicaSet", message, component=_COMPONENT)
        await self._delete(deployment, plan)
        if plan.deployment is not None:
            await self._write_status(plan.deployment)
        return None if plan.requeue_after is None else RequeueAfter(plan.requeue_after)

    async def _claim(self, deployment: Object) -> list[Object]:
        """The ReplicaSets of the Deployment, after adopting those that its selector matches and nothing controls, and
        releasing those that it does not match any more."""
        uid = deployment["metadata"]["uid"]
        deleted = "deletionTimestamp" in deployment["metadata"]
        selector = read_label_selector(deployment["spec"]["selector"])
        owned = []
        for one in self._candidates(deployment):
            references = one["metadata"].get("ownerReferences") or []
            controller = next((reference for reference in references if reference.get("controller")), None)
            matches = selector.matches(one["metadata"].get("labels") or {})
            if controller is not None and controller["uid"] == uid and matches:
                owned.append(one)
            elif controller is not None and controller["uid"] == uid and not deleted:
                await self._set_owners(one, [other for other in references if other is not controller])
            elif controller is None and matches and not deleted and "deletionTimestamp" not in one["metadata"]:
                owned.append(await self._set_owners(one, [*references, controller_reference(deployment)]))
        return owned

    async def _set_owners(self, one: Object, references: list[Object]) -> Object:
        changed = one | {"metadata": one["metadata"] | {"ownerReferences": references}}
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
            if "because it is being terminated" not in str(error):
                failed, message = creation_failed(deployment, name, str(error), self._now())
                self._recorder.record(deployment, "Warning", "ReplicaSetCreateError", message, component=_COMPONENT)
                if failed != deployment:
                    await self._write_status(failed)
            return False
        return True

    async def _resolve_collision(self, deployment: Object, rendered: Object) -> None:
        """Another ReplicaSet has the name: our own that the watch has not shown yet, or one with another template."""
        metadata = rendered["metadata"]
        present = await self._client.get(REPLICA_SETS, metadata["name"], namespace=metadata["namespace"])
        owners = {one["uid"] for one in present["metadata"].get("ownerReferences") or () if one.get("controller")}
        template = rendered["spec"]["template"]
        if deployment["metadata"]["uid"] in owners and same_template(present["spec"]["template"], template):
            self._sets.remember(present)
        else:
            await self._write_status(collided(deployment))

    async def _delete(self, deployment: Object, plan: DeploymentPlan) -> None:
        for name in plan.delete:
            try:
                await self._client.delete(REPLICA_SETS, name, namespace=deployment["metadata"]["namespace"])
            except NotFound:
                continue

    async def _write_status(self, deployment: Object) -> None:
        self._deployments.remember(await self._client.replace(DEPLOYMENTS, deployment, subresource="status"))
