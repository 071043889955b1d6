"""Writes the status of jobs.

It adds two guarantees to a plain write. A write whose response was lost is read back, so that its transitions are
counted once. Status fields that the installed CRD prunes are kept in an annotation of the job.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.api.job import is_managed_elsewhere
from trainwright.api.kinds import Kind
from trainwright.api.pruned_status import ADDITIONAL_FIELDS, ANNOTATION, annotation_value, pruned_fields
from trainwright.engine import JobEvent, Plan, Transition
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, ServerError, Unreachable
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Retry
from trainwright.objects import Object
from trainwright.operator.reconcile.child_write_events import WriteResult
from trainwright.operator.reconcile.reconcile_context import ReconcileContext

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class UnconfirmedWrite:
    """A status write over `job` whose response was lost. Only this process counts its transitions."""

    job: Object
    status: Object
    plan: Plan

    def is_stored(self, found: Object) -> bool:
        """True if `found`, the job as it is stored now, has the status that was written."""
        before, after = self.job["metadata"], found["metadata"]
        if before["uid"] != after["uid"] or before["resourceVersion"] == after["resourceVersion"]:
            return False
        return found.get("status") in (self.status, _as_pruned(self.status))


class StatusWriter:
    """The responses of the API server keep `prunes_status` up to date: a user may install another CRD meanwhile."""

    def __init__(self, context: ReconcileContext, slots: asyncio.Semaphore) -> None:
        self.on_failed: Callable[[Kind, Object], None] | None = None
        """Called when the Failed condition of a job has been written."""
        self._context, self._client = context, context.client
        self.prunes_status = context.prunes_status
        self._slots = slots
        self._unconfirmed: dict[ObjectKey, UnconfirmedWrite] = {}

    def forget(self, key: ObjectKey) -> None:
        self._unconfirmed.pop(key, None)

    async def write(self, kind: Kind, job: Object, status: Object, plan: Plan) -> WriteResult:
        """Raises if the status cannot be written: Conflict means that the job has changed since it was read."""
        event = None
        base = job
        if kind.name in self.prunes_status:
            base = await self._annotate(kind, job, status)
            event = _pruned_status_event(kind, job, base)
        if base is not job and _as_pruned(status) == _as_pruned(job.get("status") or {}):
            response = base  # only pruned fields have changed
        else:
            response = await self._replace(kind, base, status, plan)
            self._detect_pruning(kind, status, response)
            if kind.name in self.prunes_status and event is None:
                annotated = await self._annotate(kind, response, status)
                event, response = _pruned_status_event(kind, response, annotated), annotated
        if self._accept(kind, job, response, plan):
            return WriteResult(event=event)
        # A plan has a status only if it differs. Without this failure the same plan would be applied again immediately,
        # forever.
        return WriteResult(
            failure=Retry(
                "the API server pruned every change of the status: the installed CustomResourceDefinition does not "
                "declare these fields; install ours with `trainwright operator --install-crds`"
            )
        )

    async def confirm(self, kind: Kind, key: ObjectKey) -> None:
        """Reads back the last status write of the job if its response was lost. Raises if the job cannot be read."""
        write = self._unconfirmed.get(key)
        if write is None:
            return
        stored = await self._read_back(kind, write)
        self._unconfirmed.pop(key, None)
        if stored is not None:
            self._accept(kind, write.job, stored, write.plan)
            for event in write.plan.events:
                self._context.events.record(write.job, event)

    def has_outdated_annotation(self, kind: Kind, job: Object) -> bool:
        """True if the job has the annotation with pruned fields although its CRD declares them now."""
        return kind.name not in self.prunes_status and _annotation(job) is not None and not is_managed_elsewhere(job)

    async def move_annotation_to_status(self, kind: Kind, job: Object) -> None:
        """Writes the fields of the annotation to the status, then removes the annotation: a kill in between loses
        nothing."""
        status = job.get("status") or {}
        async with self._slots:
            response = await self._client.replace(kind.resource, {**job, "status": status}, subresource="status")
        self._detect_pruning(kind, status, response)
        if kind.name not in self.prunes_status:
            self._context.caches.jobs[kind.name].remember(await self._patch_annotation(kind, response, None))

    async def _replace(self, kind: Kind, job: Object, status: Object, plan: Plan) -> Object:
        try:
            async with self._slots:
                return await self._client.replace(kind.resource, {**job, "status": status}, subresource="status")
        except (ApiError, Unreachable):
            # The client retries when a response is lost. So any error, such as a conflict, may be the response to a
            # retry after the first attempt succeeded.
            write = UnconfirmedWrite(job, status, plan)
            try:
                stored = await self._read_back(kind, write)
            except (ApiError, Unreachable):
                self._unconfirmed[ObjectKey.of(job)] = write
                stored = None
            if stored is None:
                raise
            return stored

    async def _read_back(self, kind: Kind, write: UnconfirmedWrite) -> Object | None:
        """The job, if it has the status that was written."""
        metadata = write.job["metadata"]
        try:
            async with self._slots:
                found = await self._client.get(kind.resource, metadata["name"], namespace=metadata["namespace"])
        except NotFound:
            return None
        self._context.caches.jobs[kind.name].remember(found)
        return found if write.is_stored(found) else None

    def _accept(self, kind: Kind, job: Object, response: Object, plan: Plan) -> bool:
        """Caches the response and counts the transitions; False if the write has changed nothing."""
        self._context.caches.jobs[kind.name].remember(response)
        self._context.observer.status_written(kind, job, response)
        if response["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]:
            return False
        for step in plan.transitions:
            self._context.observer.transition(kind, job, step)
            if step is Transition.FAILED and self.on_failed is not None:
                self.on_failed(kind, response)
        return True

    async def _annotate(self, kind: Kind, job: Object, status: Object) -> Object:
        """The job with the pruned fields of `status` in its annotation; the same object if it has them."""
        text = annotation_value(status, job["metadata"]["uid"])
        if text == _annotation(job):
            return job
        try:
            return await self._patch_annotation(kind, job, text)
        except (Conflict, ServerError, Unreachable):
            async with self._slots:
                metadata = job["metadata"]
                found = await self._client.get(kind.resource, metadata["name"], namespace=metadata["namespace"])
            if found["metadata"]["uid"] != metadata["uid"] or _annotation(found) != text:
                raise
            return found  # the patch was applied, its response was lost

    async def _patch_annotation(self, kind: Kind, job: Object, text: str | None) -> Object:
        metadata = job["metadata"]
        patch = {"annotations": {ANNOTATION: text}, "resourceVersion": metadata["resourceVersion"]}
        async with self._slots:
            return await self._client.patch(
                kind.resource, metadata["name"], {"metadata": patch}, namespace=metadata["namespace"]
            )

    def _detect_pruning(self, kind: Kind, written: Object, response: Object) -> None:
        """Updates `prunes_status` from the fields in the response."""
        stored = response.get("status") or {}
        if pruned_fields(written, stored) and kind.name not in self.prunes_status:
            self.prunes_status.add(kind.name)
            log.warning("%s", explain_pruned_status(kind))
        elif any(stored.get(field) for field in ADDITIONAL_FIELDS) and kind.name in self.prunes_status:
            self.prunes_status.discard(kind.name)
            log.info("the CustomResourceDefinition of %s declares our fields now", kind.resource.qualified_plural)


def explain_pruned_status(kind: Kind) -> str:
    fields = ", ".join(f"status.{field}" for field in ADDITIONAL_FIELDS)
    return (
        f"the CustomResourceDefinition of {kind.resource.qualified_plural} does not declare {fields}: they are kept in "
        f"the annotation {ANNOTATION}; install ours with `trainwright operator --install-crds`"
    )


def _pruned_status_event(kind: Kind, before: Object, after: Object) -> JobEvent | None:
    """Recorded once for each job: when it gets the annotation."""
    if _annotation(before) is not None or _annotation(after) is None:
        return None
    return JobEvent("Warning", "StatusFieldsDropped", explain_pruned_status(kind))


def _annotation(job: Object) -> str | None:
    text: str | None = (job["metadata"].get("annotations") or {}).get(ANNOTATION)
    return text


def _as_pruned(status: Object) -> Object:
    """The status as upstream's CRD stores it."""
    return {field: value for field, value in status.items() if field not in ADDITIONAL_FIELDS}
