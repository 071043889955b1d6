"""Carries out what the engine planned: the job's status first, then its children, then the events that tell of it.

This order makes a kill harmless at any point: what a plan counts or remembers stands in the status before a child
changes, and what is missing afterwards is planned again. A new job has nothing to remember: its pods come first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from trainwright.api.kinds import Kind
from trainwright.api.labels import EARLIER_JOB_NAME, JOB_NAME, OPERATOR_NAME
from trainwright.engine import Create, Delete, JobEvent, Patch, Plan, Replace
from trainwright.engine.framework import Correction
from trainwright.engine.labels import modern_labels
from trainwright.engine.policies.name_conflicts import conflict, is_temporary
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound, Unreachable
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Retry
from trainwright.objects import Object
from trainwright.objects.resources import PODS, SERVICES
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.child_errors import final_refusal
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.results import Result
from trainwright.operator.reconcile.status_writer import StatusWriter

Write = Callable[[], Awaitable[Result]]


class Unacceptable(Exception):  # noqa: N818 (it says what the job is)
    """The server will never take a child as the job describes it. The message names the field."""


class Applier:
    """Applies plans of many jobs at once, never more than `parallel_writes` writes at a time over all of them."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventBuffer,
        *,
        parallel_writes: int,
        observer: Observer | None = None,
        prunes_status: Iterable[str] = (),
    ) -> None:
        self._client = client
        self._observer = observer or Observer()
        self._caches = caches
        self._events = events
        self._parallel_writes = parallel_writes
        self._slots = asyncio.Semaphore(parallel_writes)
        self._standing = Deduplicator[ObjectKey, tuple[str, JobEvent]]()
        self.statuses = StatusWriter(client, caches, events, self._observer, self._slots, prunes_status=prunes_status)

    def forget(self, key: ObjectKey) -> None:
        """The job is gone, and with it all that was to be told about it."""
        self._standing.forget(key)
        self.statuses.forget(key)
        self._caches.forget_claims(key.namespaced_name)

    async def apply(self, kind: Kind, job: Object, plan: Plan) -> tuple[Retry, ...]:
        """Answers with what failed. Raises, with nothing else done but the children of a new job, if the status cannot
        be written: Conflict means that the job has changed since it was read. Raises Unacceptable when all is done
        that could be."""
        with self._events.hold():
            if plan.status_follows:
                results = self._told(job, await self._write_children(kind, job, plan))
                if not _can_wait(results):
                    results += self._told(job, await self._write_status(kind, job, plan))
            else:
                results = self._told(job, await self._write_status(kind, job, plan))
                results += self._told(job, await self._write_children(kind, job, plan))
            if plan.delete_job:
                results += self._told(job, [await self._delete_job(kind, job)])
        uid = job["metadata"]["uid"]  # a new job of the same name starts from the beginning
        standing = self._standing.update(ObjectKey.of(job), [(uid, event) for event in plan.standing_events])
        for event in (*plan.events, *(event for _, event in standing)):
            self._events.record(job, event)
        if refused := next((result.final for result in results if result.final), None):
            raise Unacceptable(refused)
        return tuple(result.failure for result in results if result.failure)

    def _told(self, job: Object, results: list[Result]) -> list[Result]:
        """Tells of what has happened before the next step, which may raise."""
        for result in results:
            if result.event:
                self._events.record(job, result.event)
        return results

    async def _write_status(self, kind: Kind, job: Object, plan: Plan) -> list[Result]:
        return [] if plan.status is None else [await self.statuses.write(kind, job, plan.status, plan)]

    async def _write_children(self, kind: Kind, job: Object, plan: Plan) -> list[Result]:
        """Starts the writes in the plan's order, wave by wave. After one failed create no further child is created:
        the next would fail for the same reason, a quota for example, and a group with a gap cannot train anyway."""
        if not plan.changes_children:
            return []
        changes: list[Write] = [
            *(partial(self._delete, job, delete) for delete in plan.deletes),
            *(partial(self._patch, job, patch) for patch in plan.patches),
            *(partial(self._replace, job, replacement) for replacement in plan.replaces),
        ]
        waves = [[*wave] for _, wave in groupby(sorted(plan.creates, key=_wave_of), key=_wave_of)] or [[]]
        results: list[Result] = []
        for creates in waves:
            written = await self._write(job, changes, creates)
            results += [written[number] for number in sorted(written)]
            created = [(create, written.get(number)) for number, create in enumerate(creates, len(changes))]
            self._count_pods(kind, job, plan, created)
            if any(create.needed and (result is None or result.failure) for create, result in created):
                break
            changes = []
        return results

    def _count_pods(self, kind: Kind, job: Object, plan: Plan, created: list[tuple[Create, Result | None]]) -> None:
        """A launch counts when all pods exist, even if a Service does not."""
        pods = [result for create, result in created if create.resource == PODS]
        if pods and all(result is not None and result.failure is None for result in pods):
            self._observer.pods_created(kind, {**job, "status": plan.status or job.get("status")})

    async def _write(self, job: Object, others: Sequence[Write], creates: Sequence[Create]) -> dict[int, Result]:
        """The results of all `others`, then of those `creates` that were tried, by their number."""
        results: dict[int, Result] = {}
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
                    if write.needed and results[number].failure is not None:
                        failed = True

        # A few workers for each plan rather than a task for each write: the slots are handed out in turn, so a job of
        # a thousand pods does not make a small one wait for all of them.
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(others) + len(creates), self._parallel_writes)):
                    group.create_task(work())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return results

    async def _create(self, job: Object, create: Create) -> Result:
        views = self._caches.children(create.resource.kind)
        kind = create.resource.kind
        try:
            # The CRD leaves templates open, so only here a misspelt field in one is found.
            answer = await self._client.create(create.resource, create.render(), strict=True)
        except AlreadyExists as error:
            return await self._claim(job, create, error)
        except (ApiError, Unreachable) as error:
            failed = _failed("Create", kind, f"Error creating: {error}", error)
            if _namespace_is_terminating(error):
                return replace(failed, event=None)  # nor could an event be written there
            return replace(failed, final=final_refusal(create.job_field, error))
        views.remember(answer)
        return _succeeded("Create", kind, f"Created {_word(kind)}: {create.name}", announced=create.announced)

    async def _claim(self, job: Object, create: Create, error: AlreadyExists) -> Result:
        """The name is taken: by a child of this job, which a lost response or a slow watch explains; by an object that
        is about to be deleted; or by one of another owner that the watches do not show."""
        kind = create.resource.kind
        try:
            answer = await self._find(create, job["metadata"]["namespace"])
        except (ApiError, Unreachable) as problem:
            return Result(failure=Retry.after(problem, f"{error}; reading it: {problem}"))
        views = self._caches.children(kind)
        metadata = views.read(answer).metadata
        owner = metadata.controller
        if owner and owner.uid == job["metadata"]["uid"]:
            if JOB_NAME not in metadata.labels:
                return await self._label(job, kind, answer, error)
            views.remember(answer)
            return Result()
        job_kind, job_name = job["kind"], job["metadata"]["name"]
        if is_temporary(metadata, job_kind, job_name):
            return Result(
                failure=Retry(f"{error}: it is being deleted, or belongs to a former {job_kind} of this name")
            )
        event = conflict(metadata, kind, job=f"{job_kind} {job_name}")
        return Result(event=event, failure=Retry(event.message))

    async def _find(self, create: Create, namespace: str) -> Object:
        """Pods and Services may be read by name; upstream's ClusterRole allows to list the other objects, not more."""
        if create.resource in {PODS, SERVICES}:
            return await self._client.get(create.resource, create.name, namespace=namespace)
        selector = f"metadata.name={create.name}"
        found = await self._client.list(create.resource, namespace=namespace, field_selector=selector)
        if not found.items:
            raise NotFound({"message": f'{create.resource.qualified_plural} "{create.name}" not found'})
        return found.items[0]

    async def _label(self, job: Object, kind: str, answer: Object, error: AlreadyExists) -> Result:
        """A child of this job that the watch does not show, because it lacks the label: another operator made it."""
        views = self._caches.children(kind)
        child = views.read(answer).metadata
        controller = f"{job['kind'].lower()}-controller"
        labels = {OPERATOR_NAME: controller, JOB_NAME: job["metadata"]["name"]}
        if views.extra is None:
            if child.labels.get(EARLIER_JOB_NAME) != job["metadata"]["name"]:
                message = f"Error creating: {error} without the label {JOB_NAME}: put it back"
                return _failed("Create", kind, message, error)
            labels = modern_labels(child.labels, controller=controller)
        elif views.extra.correction is Correction.NEVER:
            self._caches.claim(ObjectKey.of(job).namespaced_name, views.read(answer))
            return Result()
        elif views.extra.correction is Correction.UPDATE:
            metadata = {**answer["metadata"], "labels": {**child.labels, **labels}}
            return await self._replace(job, Replace(views.resource, child.name, {**answer, "metadata": metadata}))
        patch = Patch(views.resource, child.name, child.uid, {"metadata": {"labels": labels}})
        return await self._patch(job, patch)

    async def _patch(self, job: Object, patch: Patch) -> Result:
        kind, namespace = patch.resource.kind, job["metadata"]["namespace"]
        metadata = {**patch.body.get("metadata", {}), "uid": patch.uid}
        try:
            answer = await self._client.patch(
                patch.resource, patch.name, {**patch.body, "metadata": metadata}, namespace=namespace
            )
        except (ApiError, Unreachable) as error:
            if _is_another_now(error):
                return Result(failure=Retry(str(error)))  # the watch will show it
            return _failed("Update", kind, f"Error updating {patch.name}: {error}", error)
        self._caches.children(kind).remember(answer)
        return Result()

    async def _replace(self, job: Object, replacement: Replace) -> Result:
        _ = job
        kind = replacement.resource.kind
        try:
            answer = await self._client.replace(replacement.resource, replacement.body)
        except (NotFound, Conflict) as error:
            return Result(failure=Retry(str(error)))  # the watch will show it
        except (ApiError, Unreachable) as error:
            return _failed("Update", kind, f"Error updating {replacement.name}: {error}", error)
        self._caches.children(kind).remember(answer)
        return Result()

    async def _delete(self, job: Object, delete: Delete) -> Result:
        kind, namespace = delete.resource.kind, job["metadata"]["namespace"]
        try:
            answer = await self._client.delete(
                delete.resource,
                delete.name,
                namespace=namespace,
                uid=delete.uid,
                grace_period_seconds=0 if delete.force else None,
            )
        except NotFound:
            answer, result = {}, Result()
        except Conflict as error:
            return Result(failure=Retry(str(error)))  # another object has the name now: the watch will show it
        except (ApiError, Unreachable) as error:
            return _failed("Delete", kind, f"Error deleting: {error}", error)
        else:
            result = _succeeded("Delete", kind, f"Deleted {_word(kind)}: {delete.name}", announced=delete.announced)
        self._caches.children(kind).remember_deletion(answer, key=f"{namespace}/{delete.name}", uid=delete.uid)
        return result

    async def _delete_job(self, kind: Kind, job: Object) -> Result:
        metadata = job["metadata"]
        try:
            async with self._slots:
                await self._client.delete(
                    kind.resource, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
                )
        except (NotFound, Conflict):
            return Result()
        except (ApiError, Unreachable) as error:
            return _failed("Delete", PODS.kind, f"Error deleting: {error}", error)
        # The reason is upstream's for this event.
        return _succeeded("Delete", PODS.kind, f"Deleted job: {metadata['name']}")


def _wave_of(create: Create) -> int:
    return create.wave


def _can_wait(results: Iterable[Result]) -> bool:
    """Whether the status can wait for the next look, which plans it again: not where a child was refused, for it may be
    refused for hours; but where the server asked for a pause."""
    return all(result.failure is None or result.failure.seconds for result in results)


def _is_another_now(error: Exception) -> bool:
    """Whether a patch failed because its object has changed, gone, or made room for another of the same name: the
    server calls another uid a change of an immutable field."""
    return isinstance(error, NotFound | Conflict) or (isinstance(error, Invalid) and "metadata.uid" in error.message)


def _namespace_is_terminating(error: Exception) -> bool:
    return isinstance(error, Forbidden) and any(cause.reason == "NamespaceTerminating" for cause in error.causes)


def _succeeded(verb: str, kind: str, message: str, *, announced: bool = True) -> Result:
    return Result(event=JobEvent("Normal", f"Successful{verb}{kind}", message) if announced else None)


def _word(kind: str) -> str:
    """How events spell a kind."""
    return kind.lower() if kind in {"Pod", "Service"} else kind


def _failed(verb: str, kind: str, message: str, error: Exception) -> Result:
    event = JobEvent("Warning", f"Failed{verb}{kind}", message)
    return Result(event=event, failure=Retry.after(error, message))
