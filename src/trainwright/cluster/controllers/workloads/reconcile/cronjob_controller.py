"""Carries out the plans for CronJobs."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from trainwright.cluster.controllers.workloads.plans.cronjob_plan import plan_cron_job, reference_to
from trainwright.cluster.controllers.workloads.reconcile.shared_steps import requeue_after, write_status
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.resources import BATCH_JOBS, CRON_JOBS

_COMPONENT = "cronjob-controller"


class CronJobController:
    """`owned` returns the Jobs that a CronJob controls."""

    def __init__(
        self,
        client: Client,
        cron_jobs: Store[Object],
        jobs: Store[Object],
        recorder: EventRecorder,
        owned: Callable[[Object], Sequence[Object]],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._cron_jobs = cron_jobs
        self._jobs = jobs
        self._recorder = recorder
        self._owned = owned
        self._now = now

    async def reconcile(self, cron_job: Object) -> Outcome | None:
        plan = plan_cron_job(cron_job, self._owned(cron_job), self._now())
        for job in plan.delete:
            await self._delete(cron_job, job)
        if plan.create is not None:
            try:
                job = await self._create(cron_job, plan.create)
            except ApiError as error:
                self._record(cron_job, "Warning", "FailedCreate", f"Error creating job: {error}")
                return Retry(str(error))
            plan.status["active"] = [*(plan.status.get("active") or ()), reference_to(job)]
        await write_status(self._client, CRON_JOBS, self._cron_jobs, cron_job, plan.status)
        for type_, reason, message in plan.events:
            self._record(cron_job, type_, reason, message)
        return requeue_after(plan.requeue_after)

    async def _create(self, cron_job: Object, rendered: Object) -> Object:
        metadata = rendered["metadata"]
        try:
            job = await self._client.create(BATCH_JOBS, rendered)
        except AlreadyExists:  # created before the last status was written
            return await self._client.get(BATCH_JOBS, metadata["name"], namespace=metadata["namespace"])
        self._jobs.remember(job)
        self._record(cron_job, "Normal", "SuccessfulCreate", f"Created job {metadata['name']}")
        return job

    async def _delete(self, cron_job: Object, job: Object) -> None:
        metadata = job["metadata"]
        with suppress(NotFound):
            await self._client.delete(
                BATCH_JOBS, metadata["name"], namespace=metadata["namespace"], propagation="Background"
            )
            self._record(cron_job, "Normal", "SuccessfulDelete", f"Deleted job {metadata['name']}")

    def _record(self, cron_job: Object, type_: str, reason: str, message: str) -> None:
        self._recorder.record(cron_job, type_, reason, message, component=_COMPONENT)
