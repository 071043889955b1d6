"""Writes the status of jobs, and makes sure of two things that a plain write does not: that what it makes true is
counted once although answers get lost, and that what must be remembered is kept where the CRD drops our fields.
"""

import asyncio
import logging
from collections.abc import Iterable

from trainwright.api.job import is_managed_elsewhere
from trainwright.api.kinds import Kind
from trainwright.api.pruned_status import ANNOTATION, FIELDS, lost, remembered
from trainwright.engine import JobEvent, Plan
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, ServerError, Unreachable
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Retry
from trainwright.objects import Object
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.results import Result
from trainwright.operator.reconcile.unconfirmed_writes import Doubt, carried_out

log = logging.getLogger(__name__)


class StatusWriter:
    """`prunes_status` are the kinds whose CRD keeps no field of ours. It is corrected by what the server answers:
    somebody may install another CRD while we run."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventBuffer,
        observer: Observer,
        slots: asyncio.Semaphore,
        *,
        prunes_status: Iterable[str] = (),
    ) -> None:
        self.prunes_status = set(prunes_status)
        self._client = client
        self._caches = caches
        self._events = events
        self._observer = observer
        self._slots = slots
        self._doubts: dict[ObjectKey, Doubt] = {}

    def forget(self, key: ObjectKey) -> None:
        self._doubts.pop(key, None)

    async def write(self, kind: Kind, job: Object, status: Object, plan: Plan) -> Result:
        """Raises, with nothing done that matters, if it cannot be written: Conflict means that the job has changed."""
        event = None
        base = job
        if kind.name in self.prunes_status:
            base = await self._keep(kind, job, status)
            event = _first_memory(kind, job, base)
        if base is not job and _visible(status) == _visible(job.get("status") or {}):
            answer = base  # nothing else is new, and the server would drop what is
        else:
            answer = await self._replace(kind, base, status, plan)
            self._learn(kind, status, answer)
            if kind.name in self.prunes_status and event is None:
                kept = await self._keep(kind, answer, status)
                event, answer = _first_memory(kind, answer, kept), kept
        if self._take_in(kind, job, answer, plan):
            return Result(event=event)
        # A plan writes a status only if it is another one. Without this the same plan would follow at once, for ever.
        return Result(
            failure=Retry(
                "the server keeps nothing of what is new in the status: its CustomResourceDefinition does not declare "
                "our fields; install ours with `trainwright operator --install-crds`"
            )
        )

    async def clear_doubt(self, kind: Kind, key: ObjectKey) -> None:
        """Finds out what became of a status write whose answer was lost. Raises as long as nobody says."""
        doubt = self._doubts.get(key)
        if doubt is None:
            return
        found = await self._look_for(kind, doubt)
        self._doubts.pop(key, None)
        if found is not None:
            self._take_in(kind, doubt.job, found, doubt.plan)
            for event in doubt.plan.events:
                self._events.record(doubt.job, event)

    def is_outdated(self, kind: Kind, job: Object) -> bool:
        """Whether a job of ours carries a memory that its status has room for by now."""
        return kind.name not in self.prunes_status and _memory(job) is not None and not is_managed_elsewhere(job)

    async def move_memory(self, kind: Kind, job: Object) -> None:
        """Puts the memory into the status, where it belongs, and takes the annotation away. In this order: a kill in
        between costs nothing."""
        status = job.get("status") or {}
        async with self._slots:
            answer = await self._client.replace(kind.resource, {**job, "status": status}, subresource="status")
        self._learn(kind, status, answer)
        if kind.name not in self.prunes_status:
            self._caches.jobs[kind.name].remember(await self._annotate(kind, answer, None))

    async def _replace(self, kind: Kind, job: Object, status: Object, plan: Plan) -> Object:
        try:
            async with self._slots:
                return await self._client.replace(kind.resource, {**job, "status": status}, subresource="status")
        except (ApiError, Unreachable):
            # The server may have carried it out all the same. Whatever it says in the end, a conflict for example, may
            # be due to that: the client asks again when an answer is lost.
            doubt = Doubt(job, status, plan)
            try:
                found = await self._look_for(kind, doubt)
            except (ApiError, Unreachable):
                self._doubts[ObjectKey.of(job)] = doubt
                found = None
            if found is None:
                raise
            return found

    async def _look_for(self, kind: Kind, doubt: Doubt) -> Object | None:
        """The job, if it has the status that was written."""
        metadata = doubt.job["metadata"]
        try:
            async with self._slots:
                found = await self._client.get(kind.resource, metadata["name"], namespace=metadata["namespace"])
        except NotFound:
            return None
        self._caches.jobs[kind.name].remember(found)
        return found if carried_out(doubt.job, doubt.status, found) else None

    def _take_in(self, kind: Kind, job: Object, answer: Object, plan: Plan) -> bool:
        """Counts what a status that was written has made true; False if the server kept nothing of it."""
        self._caches.jobs[kind.name].remember(answer)
        self._observer.status_written(kind, job, answer)
        if answer["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"]:
            return False
        for step in plan.transitions:
            self._observer.transition(kind, job, step)
        return True

    async def _keep(self, kind: Kind, job: Object, status: Object) -> Object:
        """The job with the memory of this status in its annotation; the same one if it was there."""
        text = remembered(status, job["metadata"]["uid"])
        if text == _memory(job):
            return job
        try:
            return await self._annotate(kind, job, text)
        except (Conflict, ServerError, Unreachable):
            async with self._slots:
                metadata = job["metadata"]
                found = await self._client.get(kind.resource, metadata["name"], namespace=metadata["namespace"])
            if found["metadata"]["uid"] != metadata["uid"] or _memory(found) != text:
                raise
            return found  # it was written, and the answer was lost

    async def _annotate(self, kind: Kind, job: Object, text: str | None) -> Object:
        metadata = job["metadata"]
        mine = {"annotations": {ANNOTATION: text}, "resourceVersion": metadata["resourceVersion"]}
        async with self._slots:
            return await self._client.patch(
                kind.resource, metadata["name"], {"metadata": mine}, namespace=metadata["namespace"]
            )

    def _learn(self, kind: Kind, written: Object, answer: Object) -> None:
        """Whether the CRD keeps our fields shows in what comes back of them."""
        kept = answer.get("status") or {}
        if lost(written, kept) and kind.name not in self.prunes_status:
            self.prunes_status.add(kind.name)
            log.warning("%s", explain_pruned_status(kind))
        elif any(kept.get(field) for field in FIELDS) and kind.name in self.prunes_status:
            self.prunes_status.discard(kind.name)
            log.info("the CustomResourceDefinition of %s keeps our fields now", kind.resource.qualified_plural)


def explain_pruned_status(kind: Kind) -> str:
    fields = ", ".join(f"status.{field}" for field in FIELDS)
    return (
        f"the CustomResourceDefinition of {kind.resource.qualified_plural} does not declare {fields}: they are kept in "
        f"the annotation {ANNOTATION}; install ours with `trainwright operator --install-crds`"
    )


def _first_memory(kind: Kind, before: Object, after: Object) -> JobEvent | None:
    """Told once for each job: when it gets the annotation."""
    if _memory(before) is not None or _memory(after) is None:
        return None
    return JobEvent("Warning", "StatusFieldsDropped", explain_pruned_status(kind))


def _memory(job: Object) -> str | None:
    text: str | None = (job["metadata"].get("annotations") or {}).get(ANNOTATION)
    return text


def _visible(status: Object) -> Object:
    """The status as upstream's CRD keeps it."""
    return {field: value for field, value in status.items() if field not in FIELDS}
