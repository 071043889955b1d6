"""The scheduler: binds pending pods to nodes, or sets their PodScheduled condition."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from trainwright.cluster.controllers.gangs import Members, PodGroup, group_of, group_status, schedule_gang
from trainwright.cluster.controllers.scheduler_filters import (
    SCHEDULING_GATED,
    Bind,
    Claim,
    NodeUsage,
    SchedulableNode,
    SchedulablePod,
    Unschedulable,
    schedule,
)
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, NotFound, Unreachable
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import RequeueAfter
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from trainwright.objects.times import format_time

log = logging.getLogger(__name__)

_BY_NODE, _BY_NAMESPACE, _BY_GROUP = "node", "namespace", "group"
_WITHOUT_NODE = ""
_REPORT_DELAY = 1.0
"""Seconds before a pending pod is reported: objects that it needs, such as a claim, may be created right after it."""


class Scheduler:
    """`recorder` has the component `default-scheduler`, which kubectl shows with its events."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        *,
        gang: GangScheduler | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._gang = gang
        self._now = now
        self._pods = Store[SchedulablePod](indexes={_BY_NODE: _node_of, _BY_GROUP: self._group_index})
        self._groups = Store[PodGroup]()
        self._nodes = Store[SchedulableNode]()
        self._claims = Store[Claim](indexes={_BY_NAMESPACE: lambda claim: (claim.metadata.namespace,)})
        # Includes pods whose binding the watch has not delivered yet (kube-scheduler calls them assumed pods).
        self._usage = NodeUsage()
        self._pending_since: dict[str, float] = {}
        """When pods without a node were first seen, by uid, in the time of the event loop."""

        claims = PERSISTENT_VOLUME_CLAIMS
        self.controller = Controller(
            self._schedule,
            log=log,
            reflectors=[
                Reflector(client, PODS, self._pods, convert=SchedulablePod, on_change=self._pod_changed),
                Reflector(client, NODES, self._nodes, convert=SchedulableNode, on_change=self._node_changed),
                Reflector(client, claims, self._claims, convert=Claim, on_change=self._claim_changed),
                *(
                    [Reflector(client, gang.resource, self._groups, convert=PodGroup, on_change=self._group_changed)]
                    if gang is not None
                    else []
                ),
            ],
        )

    def _pod_changed(self, before: SchedulablePod | None, after: SchedulablePod | None) -> None:
        pod = after or before
        if pod is None:
            return
        key = _key(pod)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid or not after.is_pending):
            self._pending_since.pop(before.metadata.uid, None)
        if self._gang is not None and (group := group_of(self._gang, pod)) is not None:
            self._enqueue_group(group)
        if after is not None and after.is_pending:
            self.controller.queue.add(key)
        elif after is not None and after.spec.node_name and not after.finished:
            self._usage.add(key, after.spec.node_name, after)
        elif key in self._usage:
            self._usage.remove(key)
            self._enqueue_pending()

    def _node_changed(self, before: SchedulableNode | None, after: SchedulableNode | None) -> None:
        # Heartbeats change a node every few seconds; only fields that the filters use matter.
        if before is None or after is None or _relevant_fields(before) != _relevant_fields(after):
            self._enqueue_pending()
            for group in self._groups.all():
                self._enqueue_group(group.metadata.namespaced_name)

    def _group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        if after is not None and (before is None or before.spec != after.spec):
            self._enqueue_group(after.metadata.namespaced_name)

    def _enqueue_group(self, group: str) -> None:
        """The group, for its status, and its pending pods: each new member may complete it."""
        if self._gang is not None and self._groups.get(group) is not None:
            self.controller.queue.add(ObjectKey(self._gang.resource.kind, *group.split("/", 1)))
        for pod in self._pods.by_index(_BY_GROUP, group):
            if pod.is_pending:
                self.controller.queue.add(_key(pod))

    def _group_index(self, pod: SchedulablePod) -> tuple[str, ...]:
        group = group_of(self._gang, pod) if self._gang is not None else None
        return () if group is None else (group,)

    def _claim_changed(self, before: Claim | None, after: Claim | None) -> None:
        if before is None or after is None or before.status != after.status:
            self._enqueue_pending()

    def _enqueue_pending(self) -> None:
        for pod in self._pods.by_index(_BY_NODE, _WITHOUT_NODE):
            if pod.is_pending:
                self.controller.queue.add(_key(pod))

    async def _schedule(self, key: ObjectKey) -> RequeueAfter | None:
        if self._gang is not None and key.kind == self._gang.resource.kind:
            await self._write_group_status(self._gang, key.namespaced_name)
            return None
        pod = self._pods.get(key.namespaced_name)
        if pod is None or not pod.is_pending or key in self._usage:
            return None
        if self._gang is not None and (group := self._groups.get(group_of(self._gang, pod) or "")) is not None:
            return await self._schedule_member(self._gang, group, pod)
        decision = schedule(
            pod, nodes=self._nodes.all(), used=self._usage.totals, claims=self._claims_in(pod.metadata.namespace)
        )
        if isinstance(decision, Bind):
            await self._bind(pod, decision)
        else:
            return await self._report_later(pod, decision)
        return None

    async def _schedule_member(self, gang: GangScheduler, group: PodGroup, pod: SchedulablePod) -> RequeueAfter | None:
        """Binds the pod together with the others of its group, or none of them."""
        members = self._members(group)
        decisions = schedule_gang(
            gang,
            group,
            members,
            nodes=self._nodes.all(),
            used=self._usage.totals,
            claims=self._claims_in(pod.metadata.namespace),
        )
        bound = {
            member.metadata.name: (member, decision)
            for member in members.pending
            if isinstance(decision := decisions.get(member.metadata.name), Bind)
        }
        for member, decision in bound.values():  # all at once, before any request: other gangs see them as placed
            self._usage.add(_key(member), decision.node, member)
        await asyncio.gather(
            *(self._bind(member, _without_unknown_scheduler(decision)) for member, decision in bound.values())
        )
        if bound:
            self._enqueue_group(group.metadata.namespaced_name)
        refused = decisions.get(pod.metadata.name)
        return await self._report_later(pod, refused) if isinstance(refused, Unschedulable) else None

    def _members(self, group: PodGroup) -> Members:
        pods = self._pods.by_index(_BY_GROUP, group.metadata.namespaced_name)
        placed = [
            pod for pod in pods if pod.status.phase != "Failed" and (pod.spec.node_name or _key(pod) in self._usage)
        ]
        names = {pod.metadata.name for pod in placed}
        pending = [pod for pod in pods if pod.is_pending and pod.metadata.name not in names]
        return Members(sorted(pending, key=lambda pod: pod.metadata.name), len(placed))

    async def _write_group_status(self, gang: GangScheduler, name: str) -> None:
        group = self._groups.get(name)
        if group is None or group.metadata.terminating:
            return
        pods = self._pods.by_index(_BY_GROUP, name)
        running = sum(pod.status.phase == "Running" for pod in pods)
        status = group_status(gang, group, self._members(group), running, self._nodes.all())
        if {key: group.status.get(key) for key in ("phase", "running")} == {"running": None, **status}:
            return
        metadata = group.metadata
        patch: Object = {"status": {"running": None, **status}}
        try:
            await self._client.patch(
                gang.resource, metadata.name, patch, namespace=metadata.namespace, subresource="status"
            )
        except NotFound:
            return

    async def _report_later(self, pod: SchedulablePod, decision: Unschedulable) -> RequeueAfter | None:
        if (delay := self._report_delay(pod, decision)) > 0:
            return RequeueAfter(delay)
        await self._report(pod, decision)
        return None

    def _report_delay(self, pod: SchedulablePod, decision: Unschedulable) -> float:
        if decision.reason == SCHEDULING_GATED:
            return 0.0
        now = asyncio.get_running_loop().time()
        return self._pending_since.setdefault(pod.metadata.uid, now) + _REPORT_DELAY - now

    def _claims_in(self, namespace: str) -> dict[str, Claim]:
        return {claim.metadata.name: claim for claim in self._claims.by_index(_BY_NAMESPACE, namespace)}

    async def _bind(self, pod: SchedulablePod, decision: Bind) -> None:
        metadata = pod.metadata
        binding: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": decision.node},
        }
        # Before the request, because other pods are scheduled while it is in flight.
        self._usage.add(_key(pod), decision.node, pod)
        try:
            await self._client.create(PODS, binding, namespace=metadata.namespace, subresource="binding")
        except NotFound:
            self._usage.remove(_key(pod))
            return
        except (ApiError, Unreachable):
            self._usage.remove(_key(pod))  # if it was bound after all, the watch shows it
            raise
        about = pod.metadata.reference(PODS.kind)
        text = f"Successfully assigned {metadata.namespace}/{metadata.name} to {decision.node}"
        self._recorder.record(about, "Normal", "Scheduled", text)
        for warning in decision.warnings:
            self._recorder.record(about, "Warning", warning.reason, warning.message)

    async def _report(self, pod: SchedulablePod, decision: Unschedulable) -> None:
        """Updates the PodScheduled condition and records an event, if the condition changes."""
        present = {condition["type"]: condition for condition in pod.status.conditions}
        current = present.get("PodScheduled", {})
        if (current.get("reason"), current.get("message")) == (decision.reason, decision.text):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": decision.reason,
            "message": decision.text,
            "lastProbeTime": None,
            "lastTransitionTime": current.get("lastTransitionTime") or format_time(self._now()),
        }
        metadata = pod.metadata
        patch: Object = {
            "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
            "status": {"conditions": [*({**present, "PodScheduled": condition}).values()]},
        }
        try:
            await self._client.patch(PODS, metadata.name, patch, namespace=metadata.namespace, subresource="status")
        except NotFound:
            return
        if decision.reason != SCHEDULING_GATED:  # upstream records no event either
            self._recorder.record(pod.metadata.reference(PODS.kind), "Warning", "FailedScheduling", decision.text)


def _without_unknown_scheduler(decision: Bind) -> Bind:
    """The gang scheduler does run on this cluster."""
    return replace(
        decision, warnings=tuple(warning for warning in decision.warnings if warning.reason != "UnknownScheduler")
    )


def _relevant_fields(node: SchedulableNode) -> object:
    return node.spec, node.status, node.metadata.labels


def _key(pod: SchedulablePod) -> ObjectKey:
    return ObjectKey(PODS.kind, pod.metadata.namespace, pod.metadata.name)


def _node_of(pod: SchedulablePod) -> tuple[str]:
    return (pod.spec.node_name,)
