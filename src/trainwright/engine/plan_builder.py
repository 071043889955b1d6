"""Builds the plan of one reconcile: the policies add to it one after the other."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from trainwright.api.pruned_status import ADDITIONAL_FIELDS
from trainwright.engine.children.ranks import format_indexes
from trainwright.engine.conditions import SUCCEEDED, set_condition
from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan import Create, Delete, JobEvent, Patch, Plan, Replace, Transition
from trainwright.engine.texts import Text
from trainwright.objects import Object, copied
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.resources import Resource
from trainwright.objects.times import format_time, parse_time

_REQUEUE_SOON = timedelta(seconds=5)
_NEW = timedelta(minutes=1)


class PlanBuilder:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        status: Object = facts.job.raw.get("status") or {}
        # Earlier versions wrote `ports`.
        self._observed_status = {field: value for field, value in status.items() if field != "ports"}
        self.status: Object = copied(self._observed_status)
        self.replaced: set[str] = set(self.status.get("replacedPods") or ())
        """UIDs of pods whose restart is counted and that are being deleted."""
        self.delete_job = False
        self._creates: list[Create] = []
        self._deletes: dict[tuple[str, str], Delete] = {}
        self._patches: list[Patch] = []
        self._replaces: list[Replace] = []
        self._transitions: list[Transition] = []
        self._events: dict[JobEvent, None] = {}
        self._standing_events: dict[JobEvent, None] = {}
        self._requeue_at: datetime | None = None

    @property
    def group_restarting(self) -> bool:
        """True while a group restart is in progress, or if this plan starts one."""
        return self._facts.group_restart and bool(self.replaced)

    # The status

    def set_condition(self, type_: str, text: Text, status: bool = True, /, **values: object) -> bool:
        """False if nothing changed."""
        job = self._facts.job
        return set_condition(
            self.status,
            type_,
            reason=text.full_reason(job),
            message=text.format(job, **values),
            now=self._facts.now,
            value=status,
        )

    def finish(self, type_: str, text: Text, *, event_type: str = "Normal", **values: object) -> None:
        """Succeeded or Failed, with the completion time and the event that belong to it."""
        if self.set_condition(type_, text, **values):
            self.status.setdefault("completionTime", format_time(self._facts.now))
            self.record(event_type, text, **values)
            self.count(Transition.SUCCESSFUL if type_ == SUCCEEDED else Transition.FAILED)

    def put(self, field: str, value: object) -> None:
        """Sets a field of the status; an empty value removes it."""
        if value:
            self.status[field] = value
        else:
            self.status.pop(field, None)

    def put_completed(self, completed: Mapping[str, Iterable[int]]) -> None:
        self.put("completedIndexes", {role: format_indexes(done) for role, done in completed.items() if done})

    def count(self, transition: Transition) -> None:
        """Adds a transition that the metrics count when the status is written."""
        self._transitions.append(transition)

    # Events

    def record(self, event_type: str, text: Text, **values: object) -> None:
        job = self._facts.job
        self.record_event(event_type, text.full_reason(job), text.format(job, **values))

    def record_event(self, event_type: str, reason: str, message: str) -> None:
        self.add_event(JobEvent(event_type, reason, message))

    def warn(self, reason: str, message: str) -> None:
        """Adds a warning about a state that lasts. The operator records it once."""
        self.add_event(JobEvent("Warning", reason, message, standing=True))

    def add_event(self, event: JobEvent) -> None:
        events = self._standing_events if event.standing else self._events
        events[event] = None

    # Children

    def create(self, create: Create) -> None:
        self._creates.append(create)

    def delete(self, resource: Resource, child: ObjectMeta, *, with_event: bool = True) -> None:
        if not child.terminating:
            delete = Delete(resource, child.name, child.uid, with_event=with_event)
            self._deletes.setdefault((resource.kind, child.name), delete)

    def force_delete(self, resource: Resource, child: ObjectMeta) -> None:
        """Deletes without grace period and without waiting for the node, even if the child is terminating."""
        self._deletes[resource.kind, child.name] = Delete(resource, child.name, child.uid, force=True)

    def patch(self, resource: Resource, child: ObjectMeta, body: Object) -> None:
        self._patches.append(Patch(resource, child.name, child.uid, body))

    def replace(self, resource: Resource, name: str, body: Object) -> None:
        self._replaces.append(Replace(resource, name, body))

    def drop_changes_to_children(self) -> None:
        self._creates.clear()
        self._deletes.clear()
        self._patches.clear()
        self._replaces.clear()

    # Time

    def requeue_at(self, moment: datetime) -> None:
        self._requeue_at = moment if self._requeue_at is None else min(self._requeue_at, moment)

    def requeue_soon(self) -> None:
        """For a job that waits for a change that the operator does not watch."""
        self.requeue_at(self._facts.now + _REQUEUE_SOON)

    def plan(self) -> Plan:
        self.put("replacedPods", sorted(self.replaced))
        changed = self.status != self._observed_status
        return Plan(
            status=self.status if changed else None,
            status_follows=changed and self._only_creates_children(),
            only_counts=changed and self._only_counts(),
            creates=tuple(self._creates),
            deletes=tuple(self._deletes.values()),
            patches=tuple(self._patches),
            replaces=tuple(self._replaces),
            transitions=tuple(self._transitions),
            events=tuple(self._events),
            standing_events=tuple(self._standing_events),
            requeue_at=self._requeue_at,
            delete_job=self.delete_job,
        )

    def _only_creates_children(self) -> bool:
        """True for the first plan of a new job if it only creates children and needs no record in the status. If the
        operator is killed before it writes the status, the next reconcile finds the children."""
        if self._observed_status or not self._is_new():
            return False
        recorded = any(self.status.get(field) for field in ADDITIONAL_FIELDS)
        changes = self._deletes or self._patches or self._replaces or self._events
        return bool(self._creates) and not (recorded or changes)

    def _only_counts(self) -> bool:
        """True if a later plan can write the status as well: nothing but its reader depends on the numbers of pods."""
        before, after = ({**status, "replicaStatuses": None} for status in (self._observed_status, self.status))
        changes = self._creates or self._deletes or self._patches or self._replaces or self._events or self.delete_job
        return before == after and not changes

    def _is_new(self) -> bool:
        """Older jobs get a status even if their children cannot be created: it shows users that the operator handles
        the job."""
        created = self._facts.job.metadata.creation_timestamp
        return created is not None and self._facts.now < parse_time(created) + _NEW
