"""A plan in the making: what is known about the job, and what the policies have added so far."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property

from trainwright.api.job import Job, Replica
from trainwright.api.pruned_status import FIELDS as MEMORY
from trainwright.engine.children import classify
from trainwright.engine.conditions import SUCCEEDED, set_condition
from trainwright.engine.framework import Framework
from trainwright.engine.job_annotations import restarts_as_group
from trainwright.engine.observed import Observed, ServiceView
from trainwright.engine.plan import Delete, JobEvent, Patch, Plan, Transition
from trainwright.engine.pod_outcome import PORT_TAKEN, End, end_of, is_disrupted
from trainwright.engine.ranks import Rank, format_indexes, parse_indexes
from trainwright.engine.rendering.addressing import Addresses
from trainwright.engine.rendering.labels import PORTS, format_ports
from trainwright.engine.settings import Addressing, Settings
from trainwright.objects import Object, copied
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.node_annotations import LISTEN_PORTS
from trainwright.objects.pods import Pod
from trainwright.objects.resources import PODS, SERVICES, Resource
from trainwright.objects.times import format_time, parse_time

_LOOK_AGAIN = timedelta(seconds=5)
_JUST_COME = timedelta(minutes=1)


class Draft:
    def __init__(
        self, job: Job, observed: Observed, settings: Settings, *, framework: Framework, now: datetime
    ) -> None:
        self.job = job
        self.observed = observed
        self.settings = settings
        self.framework = framework
        self.now = now
        self.host_ports = settings.addressing is Addressing.HOST_PORTS
        self.children = classify(job, observed)
        self.group_restart = restarts_as_group(job, settings)
        """Whether a pod is never replaced alone, but with all others."""
        self.status: Object = copied(job.raw.get("status") or {})
        self.replaced: set[str] = set(self.status.get("replacedPods") or ())
        """UIDs of pods whose end is accounted for already, and that only have to go."""
        self.postponed: dict[Rank, datetime] = {}
        """Failed pods that are not replaced yet, and when they are."""
        self.creates: list[Object] = []
        self.delete_job = False
        self._deletes: dict[tuple[str, str], Delete] = {}
        self._patches: list[Patch] = []
        self._transitions: list[Transition] = []
        self._events: dict[JobEvent, None] = {}
        self._notices: dict[JobEvent, None] = {}
        self._wake_at: datetime | None = None

    # What is known

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return self.job.replicas

    @property
    def ports(self) -> dict[str, int]:
        """The ports that were chosen for this job; none where declared ones are used."""
        return dict(self.status.get("ports") or {}) if self.host_ports else {}

    @property
    def addresses(self) -> Addresses:
        return Addresses(self.job, self.ports)

    def name_of(self, rank: Rank) -> str:
        return self.job.child_name(rank.role, rank.index)

    def is_replaced(self, pod: Pod) -> bool:
        return pod.metadata.uid in self.replaced

    @property
    def group_goes(self) -> bool:
        """A whole-group restart is under way: all pods have to go before the first new one comes."""
        return self.group_restart and bool(self.replaced)

    def completed(self, role: str) -> set[int]:
        """The ranks of the role that have finished, whether their pods still exist or not."""
        text = (self.status.get("completedIndexes") or {}).get(role, "")
        return parse_indexes(text, below=self.replicas[role].count)

    def lost_its_port(self, pod: Pod) -> bool:
        """Whether somebody else listens at the port that we chose for the pod; about others we can do nothing."""
        given = pod.metadata.annotations.get(LISTEN_PORTS)
        return pod.status.reason == PORT_TAKEN and given in {str(port) for port in self.ports.values()}

    def is_outdated(self, child: ObjectMeta) -> bool:
        """Whether the child was made for other ports than the job has now."""
        return self.host_ports and child.annotations.get(PORTS, "") != format_ports(self.ports)

    @cached_property
    def failures(self) -> dict[Rank, Pod]:
        """Failed pods that nothing has been done about yet. Who was given the wrong ports is not to blame, and who
        ends while its whole group goes belongs to a failure that is counted already."""
        if self.group_goes:
            return {}
        return {
            rank: pod
            for rank, pod in self.children.pods.items()
            if end_of(pod) is End.FAILED
            and not self._has_finished(rank)
            and not self.is_replaced(pod)
            and not self.lost_its_port(pod)
            and not self.is_outdated(pod.metadata)
        }

    @cached_property
    def taken_away(self) -> dict[Rank, Pod]:
        """Pods that somebody deletes before they had ended; those that go for the sake of other ports are none of
        them."""
        return {
            rank: pod
            for rank, pod in self.children.pods.items()
            if end_of(pod) is End.TAKEN_AWAY and not self._has_finished(rank) and not self.is_outdated(pod.metadata)
        }

    @cached_property
    def lost_a_member(self) -> bool:
        """Whether somebody or the cluster has taken a pod from the job: that others fail now is no wonder."""
        return (
            bool(self.taken_away)
            or any(map(is_disrupted, self.failures.values()))
            or any(map(self.observed.is_cut_off, self.children.pods.values()))
        )

    def _has_finished(self, rank: Rank) -> bool:
        """What becomes of its pod now means nothing any more."""
        return rank.index in self._completed_ranks[rank.role]

    @cached_property
    def _completed_ranks(self) -> dict[str, set[int]]:
        return {role: self.completed(role) for role in self.replicas}

    # What shall be

    def reason(self, word: str) -> str:
        return f"{self.job.kind.name}{word}"

    def set_condition(self, kind: str, *, word: str, message: str, truth: bool = True) -> bool:
        """Sets the condition with the reason `<Kind><word>`; False if nothing changed."""
        return set_condition(self.status, kind, reason=self.reason(word), message=message, now=self.now, truth=truth)

    def finish(self, kind: str, *, message: str, word: str = "", event: str = "Normal") -> None:
        """Succeeded or Failed, with the time and the event that belong to it; `word` is the kind's own unless given."""
        word = word or kind
        if self.set_condition(kind, word=word, message=message):
            self.status.setdefault("completionTime", format_time(self.now))
            self.tell(event, self.reason(word), message)
            self.transition(Transition.SUCCESSFUL if kind == SUCCEEDED else Transition.FAILED)

    def put(self, field: str, value: object) -> None:
        """Sets a field of the status; an empty value removes it."""
        if value:
            self.status[field] = value
        else:
            self.status.pop(field, None)

    def complete(self, completed: Mapping[str, set[int]]) -> None:
        self.put("completedIndexes", {role: format_indexes(done) for role, done in completed.items() if done})

    def tell(self, kind: str, reason: str, message: str) -> None:
        self._events[JobEvent(kind, reason, message)] = None

    def notice(self, reason: str, message: str) -> None:
        self.add_notice(JobEvent("Warning", reason, message, standing=True))

    def add_notice(self, event: JobEvent) -> None:
        self._notices[event] = None

    def transition(self, step: Transition) -> None:
        """Notes what the status of this plan makes true, for who counts such things."""
        self._transitions.append(step)

    def delete_pod(self, pod: Pod, *, force: bool = False) -> None:
        """By force: at once, even if it is on its way already, and without asking its node."""
        if force:
            self._deletes[PODS.kind, pod.name] = Delete(PODS, pod.name, pod.metadata.uid, force=True)
        else:
            self.delete(PODS, pod.metadata)

    def delete_service(self, service: ServiceView) -> None:
        self.delete(SERVICES, service.metadata)

    def delete(self, resource: Resource, child: ObjectMeta) -> None:
        if not child.terminating:
            self._deletes.setdefault((resource.kind, child.name), Delete(resource, child.name, child.uid))

    def patch(self, resource: Resource, child: ObjectMeta, body: Object) -> None:
        self._patches.append(Patch(resource, child.name, child.uid, body))

    def drop_changes_to_children(self) -> None:
        self.creates.clear()
        self._deletes.clear()
        self._patches.clear()

    def wake(self, moment: datetime) -> None:
        self._wake_at = moment if self._wake_at is None else min(self._wake_at, moment)

    def look_again(self) -> None:
        """For what somebody else has to change, and no event of ours would tell."""
        self.wake(self.now + _LOOK_AGAIN)

    def plan(self) -> Plan:
        self.put("replacedPods", sorted(self.replaced))
        changed = self.status != (self.job.raw.get("status") or {})
        return Plan(
            status=self.status if changed else None,
            status_follows=changed and self._brings_up_only(),
            creates=tuple(self.creates),
            deletes=tuple(self._deletes.values()),
            patches=tuple(self._patches),
            transitions=tuple(self._transitions),
            events=tuple(self._events),
            notices=tuple(self._notices),
            wake_at=self._wake_at,
            delete_job=self.delete_job,
        )

    def _brings_up_only(self) -> bool:
        """Whether this is the first look at a job that has just come, and all it does is to create children: nothing
        about them has to be on record, and nothing is to be told. Should we be killed before the status is written, the
        next look finds them."""
        if self.job.raw.get("status") or not self._has_just_come():
            return False
        remembers = any(self.status.get(field) for field in MEMORY)
        return bool(self.creates) and not (remembers or self._deletes or self._patches or self._events)

    def _has_just_come(self) -> bool:
        """If no child could be created for a while, whatever was the reason, the job shall show that it is known."""
        came = self.job.metadata.creation_timestamp
        return came is not None and self.now < parse_time(came) + _JUST_COME
