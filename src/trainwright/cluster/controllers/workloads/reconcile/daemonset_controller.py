"""Carries out the plans for DaemonSets."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from trainwright.cluster.controllers.scheduler_filters import SchedulableNode
from trainwright.cluster.controllers.workloads.plans.daemonset_plan import (
    daemon_set_status,
    eligible_nodes,
    plan_daemon_set,
    rendered_pod,
)
from trainwright.cluster.controllers.workloads.plans.owned_pods import available_at, claim_pods, is_active
from trainwright.cluster.controllers.workloads.plans.pod_template import REVISION_HASH
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.revision_history import HASH, RevisionHistory
from trainwright.cluster.controllers.workloads.reconcile.shared_steps import requeue_after, write_status
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import DAEMON_SETS


class DaemonSetController:
    """`candidates` returns the pods that a DaemonSet owns or may adopt, `nodes` all nodes."""

    def __init__(
        self,
        client: Client,
        sets: Store[Object],
        pods: PodControl,
        candidates: Callable[[Object], Sequence[Pod]],
        nodes: Callable[[], Iterable[SchedulableNode]],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._sets = sets
        self._pods = pods
        self._candidates = candidates
        self._nodes = nodes
        self._now = now
        self._history = RevisionHistory(client)

    async def reconcile(self, daemon_set: Object) -> Outcome | None:
        claim = await self._pods.claim(daemon_set, self._candidates(daemon_set))
        known = await self._history.of(daemon_set)
        update = await self._history.update_revision(daemon_set, known)
        revision = update["metadata"]["labels"][HASH]
        nodes = eligible_nodes(daemon_set, self._nodes())
        plan = plan_daemon_set(daemon_set, claim.owned, nodes, revision, self._now())
        error = await self._pods.delete(daemon_set, plan.delete) if plan.delete else ""
        template = daemon_set["spec"]["template"]
        rendered = [rendered_pod(daemon_set, node, revision, template) for node in plan.create]
        _, failed = await self._pods.create(daemon_set, rendered)
        owned = claim_pods(daemon_set, self._candidates(daemon_set)).owned
        status = daemon_set_status(daemon_set, owned, nodes, revision, self._now())
        await write_status(self._client, DAEMON_SETS, self._sets, daemon_set, status)
        name = daemon_set["metadata"]["name"]
        used = {f"{name}-{pod.metadata.labels.get(REVISION_HASH, '')}" for pod in owned}
        await self._history.prune(daemon_set, known, used | {update["metadata"]["name"]})
        if error or failed:
            return Retry(error or failed)
        return self._next_check(daemon_set, owned)

    def _next_check(self, daemon_set: Object, pods: Sequence[Pod]) -> Outcome | None:
        """When the next ready pod becomes available."""
        seconds, now = daemon_set["spec"].get("minReadySeconds", 0), self._now()
        times = [available_at(pod, seconds) for pod in pods if is_active(pod)]
        waiting = [(moment - now).total_seconds() for moment in times if moment is not None and moment > now]
        return requeue_after(min(waiting, default=None))
