"""Applies the engine's plans: the job's status first, then its children, then the events.

This order makes it safe to kill the operator at any point. Restarts are counted in the status before a child changes,
and children that are still missing are planned again. A new job has nothing to count, so its pods come first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from trainwright.api.kinds import Kind
from trainwright.api.labels import EARLIER_JOB_NAME, JOB_NAME, OPERATOR_NAME
from trainwright.engine import Create, Delete, JobEvent, Patch, Plan, Replace
from trainwright.engine.children.labels import modern_labels
from trainwright.engine.framework import Correction
from trainwright.engine.policies.name_conflicts import conflict, is_temporary
from trainwright.kube.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    Unreachable,
    is_namespace_terminating,
)
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Retry
from trainwright.objects import Object
from trainwright.objects.resources import PODS, SERVICES
from trainwright.operator.reconcile.child_write_events import (
    InvalidChild,
    WriteResult,
    failed_write,
    in_message,
    is_stale,
    permanent_error,
    successful_write,
)
from trainwright.operator.reconcile.reconcile_context import ReconcileContext
from trainwright.operator.reconcile.status_writer import StatusWriter

Write = Callable[[], Awaitable[WriteResult]]

_BACK_OFF_REASONS = frozenset({"CrashLoopBackOff", "RestartBackOff"})
"""The reasons of events about a container that the kubelet restarts, and about a pod that the operator replaces."""


class Applier:
    """Applies the plans of many jobs concurrently, with at most `parallel_writes` writes in flight over all jobs."""

    def __init__(self, context: ReconcileContext, *, parallel_writes: int) -> None:
        self._context, self._client, self._caches = context, context.client, context.caches
        self._parallel_writes = parallel_writes
        self._slots = asyncio.Semaphore(parallel_writes)
        self._standing = Deduplicator[ObjectKey, tuple[str, JobEvent]]()
        self.on_back_off: Callable[[Kind, Object], None] | None = None
        """Called when a rank of a job begins to wait for its next start because it has failed repeatedly."""
        self.status_writer = StatusWriter(context, self._slots)

    def forget(self, key: ObjectKey) -> None:
        """Drops everything that is kept about a job that was deleted."""
        self._standing.forget(key)
        self.status_writer.forget(key)

    async def apply(self, kind: Kind, job: Object, plan: Plan) -> tuple[Retry, ...]:
        """Returns the writes that failed.

        Raises if the status cannot be written: Conflict means that the job has changed since it was read. By then only
        the children of a new job are written. Raises InvalidChild after all other writes."""
        with self._context.events.hold():
            if plan.status_follows:
                results = self._record_events(job, await self._write_children(kind, job, plan))
                if not _status_can_wait(results):
                    results += self._record_events(job, await self._write_status(kind, job, plan))
            else:
                results = self._record_events(job, await self._write_status(kind, job, plan))
                results += self._record_events(job, await self._write_children(kind, job, plan))
            if plan.delete_job:
                results += self._record_events(job, [await self._delete_job(kind, job)])
        uid = job["metadata"]["uid"]  # a new job of the same name records its events again
        standing = self._standing.update(ObjectKey.of(job), [(uid, event) for event in plan.standing_events])
        for event in (*plan.events, *(event for _, event in standing)):
            self._context.events.record(job, event)
        if self.on_back_off is not None and any(event.reason in _BACK_OFF_REASONS for _, event in standing):
            self.on_back_off(kind, job)
        if job_error := next((result.job_error for result in results if result.job_error), None):
            raise InvalidChild(job_error)
        return tuple(result.failure for result in results if result.failure)

    def _record_events(self, job: Object, results: list[WriteResult]) -> list[WriteResult]:
        """Records the events at once, because the next step may raise."""
        for result in results:
            if result.event:
                self._context.events.record(job, result.event)
        return results

    async def _write_status(self, kind: Kind, job: Object, plan: Plan) -> list[WriteResult]:
        return [] if plan.status is None else [await self.status_writer.write(kind, job, plan.status, plan)]

    async def _write_children(self, kind: Kind, job: Object, plan: Plan) -> list[WriteResult]:
        """Starts the writes in the plan's order, wave by wave.

        A failed create stops all further creates: they would fail for the same reason, such as a quota, and a group
        cannot train without all its pods."""
        if not plan.changes_children:
            return []
        changes: list[Write] = [
            *(partial(self._delete, job, delete) for delete in plan.deletes),
            *(partial(self._patch, job, patch) for patch in plan.patches),
            *(partial(self._replace, replacement) for replacement in plan.replaces),
        ]
        waves = [[*wave] for _, wave in groupby(sorted(plan.creates, key=_wave_of), key=_wave_of)] or [[]]
        results: list[WriteResult] = []
        created: list[tuple[Create, WriteResult | None]] = []
        for creates in waves:
            written = await self._write(job, changes, creates)
            results += [written[number] for number in sorted(written)]
            created += [(create, written.get(number)) for number, create in enumerate(creates, len(changes))]
            if any(_stops(create, result) for create, result in created):
                break
            changes = []
        self._count_pods(kind, job, plan, created)
        return results

    def _count_pods(
        self, kind: Kind, job: Object, plan: Plan, created: list[tuple[Create, WriteResult | None]]
    ) -> None:
        """The metrics count a launch when all pods exist, even if a Service does not."""
        pods = [result for create, result in created if create.resource == PODS]
        if pods and all(result is not None and result.failure is None for result in pods):
            self._context.observer.pods_created(kind, {**job, "status": plan.status or job.get("status")})

    async def _write(self, job: Object, others: Sequence[Write], creates: Sequence[Create]) -> dict[int, WriteResult]:
        """The results by position: of all `others`, then of the `creates` that were tried."""
        results: dict[int, WriteResult] = {}
        writes: Iterator[tuple[int, Write | Create]] = iter(enumerate([*others, *creates]))
        failed = False

        async def work() -> None:
            nonlocal failed
            for number, write in writes:
                async with self._slots:
                    if not isinstance(write, Create):
                        results[number] = await write()
                        continue
                    if failed:
                        return
                    results[number] = await self._create(job, write)
                    if _stops(write, results[number]):
                        failed = True

        # The semaphore is fair. With a few workers for each plan, instead of a task for each write, a small job does
        # not wait for all pods of a large one.
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(others) + len(creates), self._parallel_writes)):
                    group.create_task(work())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return results

    async def _create(self, job: Object, create: Create) -> WriteResult:
        views = self._caches.children(create.resource.kind)
        kind = create.resource.kind
        try:
            # The CRD leaves templates open: strict decoding finds a misspelt field.
            response = await self._client.create(create.resource, create.render(), strict=True)
        except AlreadyExists as error:
            return await self._accept_existing(job, create, error)
        except (ApiError, Unreachable) as error:
            failed = failed_write("Create", kind, f"Error creating: {error}", error)
            if is_namespace_terminating(error):
                return replace(failed, event=None)  # the namespace accepts no events either
            return replace(failed, job_error=permanent_error(create.job_field, error))
        views.remember(response)
        created = f"Created {in_message(kind)}: {create.name}"
        return successful_write("Create", kind, created, with_event=create.with_event)

    async def _accept_existing(self, job: Object, create: Create, error: AlreadyExists) -> WriteResult:
        """The name is taken. The object may be a child of this job, after a lost response or before the watch event
        arrives; it may be about to be deleted; or it may have another owner and no label that the operator watches."""
        kind = create.resource.kind
        try:
            found = await self._read_existing(create, job["metadata"]["namespace"])
        except (ApiError, Unreachable) as problem:
            return WriteResult(failure=Retry.after(problem, f"{error}; failed to read it: {problem}"))
        views = self._caches.children(kind)
        metadata = views.read(found).metadata
        owner = metadata.controller
        if owner and owner.uid == job["metadata"]["uid"]:
            if JOB_NAME not in metadata.labels:
                return await self._restore_labels(job, found) or failed_write(
                    "Create", kind, f"Error creating: {error} without the label {JOB_NAME}: restore it", error
                )
            views.remember(found)
            return WriteResult()
        if create.shared and not metadata.terminating:
            self._caches.claim(job["metadata"]["uid"], views.read(found))
            return WriteResult()
        job_kind, job_name = job["kind"], job["metadata"]["name"]
        if is_temporary(metadata, job_kind, job_name):
            return WriteResult(
                failure=Retry(f"{error}: it is being deleted, or belongs to a former {job_kind} of this name")
            )
        event = conflict(metadata, kind, job=f"{job_kind} {job_name}")
        return WriteResult(event=event, failure=Retry(event.message))

    async def _read_existing(self, create: Create, namespace: str) -> Object:
        """Upstream's ClusterRole grants get for Pods and Services, but only list for the other objects."""
        if create.resource in {PODS, SERVICES}:
            return await self._client.get(create.resource, create.name, namespace=namespace)
        selector = f"metadata.name={create.name}"
        found = await self._client.list(create.resource, namespace=namespace, field_selector=selector)
        if not found.items:
            raise NotFound({"message": f'{create.resource.qualified_plural} "{create.name}" not found'})
        return found.items[0]

    async def label_extra_objects(self, namespace: str | None) -> None:
        """Restores the labels of extra objects that the watch does not select, because an operator that does not set
        these labels created them. For a running job, the failed create finds such an object; this method also finds
        those of finished and suspended jobs."""
        for views in self._caches.extras.values():
            found = await self._client.list(views.resource, namespace=namespace, label_selector=f"!{JOB_NAME}")
            for extra in found.items:
                owner = views.read(extra).metadata.controller
                job = self._caches.find_job(owner, extra["metadata"]["namespace"]) if owner else None
                if job is not None:
                    await self._restore_labels(job, extra)

    async def _restore_labels(self, job: Object, found: Object) -> WriteResult | None:
        """For a child of this job that the watch does not select because another operator created it without the label.
        Returns None for a pod or Service without the labels of earlier operators."""
        views = self._caches.children(found["kind"])
        child = views.read(found).metadata
        controller, name = f"{job['kind'].lower()}-controller", job["metadata"]["name"]
        labels = {OPERATOR_NAME: controller, JOB_NAME: name}
        if views.extra is None:
            if child.labels.get(EARLIER_JOB_NAME) != name:
                return None
            labels = modern_labels(child.labels, controller=controller)
        elif views.extra.correction is Correction.NEVER:
            if child.terminating:
                return WriteResult(failure=Retry(f"{views.resource.kind} {child.name} is being deleted"))
            self._caches.claim(job["metadata"]["uid"], views.read(found))
            return WriteResult()
        elif views.extra.correction is Correction.UPDATE:
            metadata = {**found["metadata"], "labels": {**child.labels, **labels}}
            return await self._replace(Replace(views.resource, child.name, {**found, "metadata": metadata}))
        patch = Patch(views.resource, child.name, child.uid, {"metadata": {"labels": labels}})
        return await self._patch(job, patch)

    async def _patch(self, job: Object, patch: Patch) -> WriteResult:
        kind, namespace = patch.resource.kind, job["metadata"]["namespace"]
        metadata = {**patch.body.get("metadata", {}), "uid": patch.uid}
        try:
            response = await self._client.patch(
                patch.resource, patch.name, {**patch.body, "metadata": metadata}, namespace=namespace
            )
        except (ApiError, Unreachable) as error:
            if is_stale(error):
                return WriteResult(failure=Retry(str(error)))  # the watch will show it
            return failed_write("Update", kind, f"Error updating {patch.name}: {error}", error)
        self._caches.children(kind).remember(response)
        return WriteResult()

    async def _replace(self, replacement: Replace) -> WriteResult:
        kind = replacement.resource.kind
        try:
            response = await self._client.replace(replacement.resource, replacement.body)
        except (NotFound, Conflict) as error:
            return WriteResult(failure=Retry(str(error)))  # the watch will show it
        except (ApiError, Unreachable) as error:
            return failed_write("Update", kind, f"Error updating {replacement.name}: {error}", error)
        if response["metadata"]["resourceVersion"] == replacement.body["metadata"].get("resourceVersion"):
            # Without this failure the same plan would be applied again immediately, forever.
            return WriteResult(failure=Retry(f"{kind} {replacement.name}: the API server ignored the update"))
        self._caches.children(kind).remember(response)
        return WriteResult()

    async def _delete(self, job: Object, delete: Delete) -> WriteResult:
        kind, namespace = delete.resource.kind, job["metadata"]["namespace"]
        try:
            response = await self._client.delete(
                delete.resource,
                delete.name,
                namespace=namespace,
                uid=delete.uid,
                grace_period_seconds=0 if delete.force else None,
            )
        except NotFound:
            response, result = {}, WriteResult()
        except Conflict as error:
            return WriteResult(failure=Retry(str(error)))  # another object has the name: the watch will show it
        except (ApiError, Unreachable) as error:
            return failed_write("Delete", kind, f"Error deleting: {error}", error)
        else:
            result = successful_write(
                "Delete", kind, f"Deleted {in_message(kind)}: {delete.name}", with_event=delete.with_event
            )
        self._caches.children(kind).remember_deletion(response, key=f"{namespace}/{delete.name}", uid=delete.uid)
        return result

    async def _delete_job(self, kind: Kind, job: Object) -> WriteResult:
        metadata = job["metadata"]
        try:
            async with self._slots:
                await self._client.delete(
                    kind.resource, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
                )
        except (NotFound, Conflict):
            return WriteResult()
        except (ApiError, Unreachable) as error:
            return failed_write("Delete", kind.deleted_as, f"Error deleting: {error}", error)
        return successful_write("Delete", kind.deleted_as, f"Deleted job: {metadata['name']}")


def _stops(create: Create, result: WriteResult | None) -> bool:
    """True if this failed create stops further creates: pods need the child, or the job is invalid."""
    if result is None:
        return create.needed
    return bool(result.job_error or (create.needed and result.failure))


def _wave_of(create: Create) -> int:
    return create.wave


def _status_can_wait(results: Iterable[WriteResult]) -> bool:
    """True if the next reconcile can write the status: the children are written, or the API server asked for a pause.
    Children that are rejected may stay so for hours, and the status has to show that."""
    return all(result.failure is None or result.failure.seconds for result in results)
