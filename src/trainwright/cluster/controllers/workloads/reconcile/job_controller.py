"""Carries out the plans for Jobs."""

import asyncio

from trainwright.cluster.controllers.workloads.plans.job_plan import JobPlan, is_finished, plan_job
from trainwright.cluster.controllers.workloads.plans.job_pods import FINALIZER, Backoff, is_tracked
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches, requeue_after
from trainwright.kube.client.errors import NotFound
from trainwright.kube.controller.outcome import Outcome, RequeueAfter, Retry
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import BATCH_JOBS

_COMPONENT = "job-controller"
_MANAGER = "kubernetes.io/job-controller"
_MOST_ROUNDS = 5


class JobController:
    def __init__(self, caches: WorkloadCaches) -> None:
        self._caches = caches
        self._client = caches.client
        self._pods = PodControl(caches, _COMPONENT)
        self._backoffs: dict[str, Backoff] = {}
        """By the uid of Jobs that have not finished."""

    async def reconcile(self, job: Object) -> Outcome | None:
        if job["spec"].get("managedBy") not in {None, _MANAGER}:
            return None
        for _ in range(_MOST_ROUNDS):
            pods = await self._pods.claim(job, finalizer=FINALIZER)
            backoff = self._backoffs.get(job["metadata"]["uid"], Backoff())
            plan = plan_job(job, pods, backoff, self._caches.now())
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
            self._caches.stores[BATCH_JOBS.kind].remember(job)
            self._remember_backoff(job, plan)
            for type_, reason, message in plan.events:
                self._caches.recorder.record(job, type_, reason, message, component=_COMPONENT)
        if not error:
            await asyncio.gather(*(self.untrack(pod) for pod in plan.untrack))
        return job, error or failed

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
