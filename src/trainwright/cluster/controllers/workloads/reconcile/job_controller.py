"""Carries out the plans for Jobs."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from trainwright.cluster.controllers.workloads.plans.job_plan import JobPlan, is_finished, plan_job
from trainwright.cluster.controllers.workloads.plans.job_pods import FINALIZER, Backoff, is_tracked
from trainwright.cluster.controllers.workloads.plans.owned_pods import claim_pods
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.shared_steps import requeue_after
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Outcome, RequeueAfter, Retry
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import BATCH_JOBS

_COMPONENT = "job-controller"
_MANAGER = "kubernetes.io/job-controller"
_MOST_ROUNDS = 5


class JobController:
    """`candidates` returns the pods that a Job owns or may adopt."""

    def __init__(
        self,
        client: Client,
        jobs: Store[Object],
        pods: PodControl,
        recorder: EventRecorder,
        candidates: Callable[[Object], Sequence[Pod]],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._pods = pods
        self._recorder = recorder
        self._candidates = candidates
        self._now = now
        self._backoffs: dict[str, Backoff] = {}
        """By the uid of Jobs that have not finished."""

    async def reconcile(self, job: Object) -> Outcome | None:
        if job["spec"].get("managedBy") not in {None, _MANAGER}:
            return None
        for _ in range(_MOST_ROUNDS):
            plan = plan_job(job, await self._claim(job), self._backoff(job), self._now())
            if plan.is_empty:
                self._remember_backoff(job, plan)
                return requeue_after(plan.requeue_after)
            if plan.expired:
                await self._delete(job)
                return None
            job, error = await self._carry_out(job, plan)
            if error:
                return Retry(error)
        return RequeueAfter(0)

    def forget(self, uid: str) -> None:
        """Called when a Job is deleted."""
        self._backoffs.pop(uid, None)

    async def untrack(self, pod: Pod) -> None:
        """Removes the finalizer of a pod whose Job is deleted, so that the pod can be removed."""
        if is_tracked(pod):
            await self._pods.remove_finalizer(pod, FINALIZER)

    async def _claim(self, job: Object) -> Sequence[Pod]:
        claim = await self._pods.claim(job, self._candidates(job), finalizer=FINALIZER)
        if not claim.adopted and not claim.released:
            return claim.owned
        return claim_pods(job, self._candidates(job)).owned

    async def _carry_out(self, job: Object, plan: JobPlan) -> tuple[Object, str]:
        """The Job after its status was written, and the first error."""
        await asyncio.gather(*(self.untrack(pod) for pod in plan.discard))
        error = await self._pods.delete(job, [*plan.discard, *plan.delete])
        created, failed = await self._pods.create(job, plan.create)
        if plan.status is not None:
            if missing := len(plan.create) - created:
                active = plan.status.get("active", 0) - missing
                plan.status |= {"active": active}
            job = await self._client.replace(BATCH_JOBS, job | {"status": plan.status}, subresource="status")
            self._jobs.remember(job)
            self._remember_backoff(job, plan)
            for type_, reason, message in plan.events:
                self._recorder.record(job, type_, reason, message, component=_COMPONENT)
        if not error:
            await asyncio.gather(*(self.untrack(pod) for pod in plan.untrack))
        return job, error or failed

    def _backoff(self, job: Object) -> Backoff:
        return self._backoffs.get(job["metadata"]["uid"], Backoff())

    def _remember_backoff(self, job: Object, plan: JobPlan) -> None:
        if is_finished(job) or plan.backoff == Backoff():
            self.forget(job["metadata"]["uid"])
        else:
            self._backoffs[job["metadata"]["uid"]] = plan.backoff

    async def _delete(self, job: Object) -> None:
        metadata = job["metadata"]
        try:
            await self._client.delete(
                BATCH_JOBS,
                metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                propagation="Foreground",
            )
        except NotFound:
            return
