"""Carries out the plans for ReplicaSets, StatefulSets and DaemonSets.

ControllerRevisions are the templates that a StatefulSet or DaemonSet has had; `kubectl rollout` restores them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from trainwright.cluster.controllers.scheduler_filters import SchedulableNode
from trainwright.cluster.controllers.workloads.plans.daemonset_plan import (
    daemon_pod,
    daemon_set_status,
    eligible_nodes,
    plan_daemon_set,
)
from trainwright.cluster.controllers.workloads.plans.owned_pods import next_availability_check
from trainwright.cluster.controllers.workloads.plans.pod_template import (
    REVISION_HASH,
    render_pod,
    same_template,
    template_hash,
)
from trainwright.cluster.controllers.workloads.plans.replicaset_plan import plan_replica_set, replica_set_status
from trainwright.cluster.controllers.workloads.plans.statefulset_plan import (
    Revisions,
    ordinal_of,
    plan_stateful_set,
    rendered_claims,
    rendered_pod,
    stateful_set_status,
)
from trainwright.cluster.controllers.workloads.reconcile.pod_control import PodControl
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import WorkloadCaches, requeue_after
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.kube.controller.store import raw_metadata
from trainwright.objects import Object, copied
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    PERSISTENT_VOLUME_CLAIMS,
    REPLICA_SETS,
    STATEFUL_SETS,
)

_HASH = "controller.kubernetes.io/hash"
"""A label of ControllerRevisions."""
_STATEFUL_SET_CONTROLLER = "statefulset-controller"
_MOST_ROUNDS = 20
_SUCCESSFUL = "Pod {pod} in StatefulSet {owner} successful"
_FAILED = "Pod {pod} in StatefulSet {owner} failed error: {error}"


class DaemonSetController:
    """`nodes` returns all nodes."""

    def __init__(self, caches: WorkloadCaches, nodes: Callable[[], Iterable[SchedulableNode]]) -> None:
        self._caches = caches
        self._pods = PodControl(caches, "daemonset-controller")
        self._nodes = nodes
        self._history = RevisionHistory(caches.client)

    async def reconcile(self, daemon_set: Object) -> Outcome | None:
        claimed = await self._pods.claim(daemon_set)
        known = await self._history.of(daemon_set)
        update = await self._history.update_revision(daemon_set, known)
        revision = update["metadata"]["labels"][_HASH]
        nodes = eligible_nodes(daemon_set, self._nodes())
        plan = plan_daemon_set(daemon_set, claimed, nodes, revision, self._caches.now())
        error = await self._pods.delete(daemon_set, plan.delete) if plan.delete else ""
        template = daemon_set["spec"]["template"]
        rendered = [daemon_pod(daemon_set, node, revision, template) for node in plan.create]
        _, failed = await self._pods.create(daemon_set, rendered)
        owned, now = self._pods.owned(daemon_set), self._caches.now()
        status = daemon_set_status(daemon_set, owned, nodes, revision, now)
        await self._caches.write_status(DAEMON_SETS, daemon_set, status)
        name = daemon_set["metadata"]["name"]
        used = {f"{name}-{pod.metadata.labels.get(REVISION_HASH, '')}" for pod in owned}
        await self._history.prune(daemon_set, known, used | {update["metadata"]["name"]})
        if error or failed:
            return Retry(error or failed)
        return requeue_after(next_availability_check(daemon_set, owned, now))


class ReplicaSetController:
    def __init__(self, caches: WorkloadCaches) -> None:
        self._caches = caches
        self._pods = PodControl(caches, "replicaset-controller")

    async def reconcile(self, replica_set: Object) -> Outcome | None:
        plan = plan_replica_set(replica_set, await self._pods.claim(replica_set))
        failure = None
        if plan.create:
            template = replica_set["spec"]["template"]
            _, error = await self._pods.create(replica_set, [render_pod(replica_set, template)] * plan.create)
            failure = ("FailedCreate", error) if error else None
        if plan.delete:
            error = await self._pods.delete(replica_set, plan.delete)
            failure = ("FailedDelete", error) if error else None
        owned, now = self._pods.owned(replica_set), self._caches.now()
        status = replica_set_status(replica_set, owned, failure, now)
        await self._caches.write_status(REPLICA_SETS, replica_set, status)
        if failure is not None:
            return Retry(failure[1])
        return requeue_after(next_availability_check(replica_set, owned, now))


class StatefulSetController:
    def __init__(self, caches: WorkloadCaches) -> None:
        self._caches = caches
        self._pods = PodControl(
            caches,
            _STATEFUL_SET_CONTROLLER,
            created=f"Create {_SUCCESSFUL}",
            deleted=f"Delete {_SUCCESSFUL}",
            not_created=f"Create {_FAILED}",
            not_deleted=f"Delete {_FAILED}",
        )
        self._history = RevisionHistory(caches.client)

    async def reconcile(self, stateful_set: Object) -> Outcome | None:
        await self._pods.claim(stateful_set)
        known = await self._history.of(stateful_set)
        update = await self._history.update_revision(stateful_set, known)
        by_name = {revision["metadata"]["name"]: revision for revision in (*known, update)}
        revisions = _revisions(stateful_set, by_name, update["metadata"]["name"])
        error, wait = "", None
        for _ in range(_MOST_ROUNDS):
            plan = plan_stateful_set(stateful_set, self._owned(stateful_set), revisions, self._caches.now())
            wait = plan.wait
            if plan.delete:
                error = await self._pods.delete(stateful_set, plan.delete)
            for ordinal in plan.create:
                error = error or await self._create(stateful_set, ordinal, by_name, revisions)
            if error or not (plan.create or plan.delete):
                break
        owned = self._owned(stateful_set)
        status = stateful_set_status(stateful_set, list(owned.values()), revisions, self._caches.now())
        await self._caches.write_status(STATEFUL_SETS, stateful_set, status)
        used = {pod.metadata.labels.get(REVISION_HASH, "") for pod in owned.values()}
        await self._history.prune(stateful_set, known, used | {status["currentRevision"], status["updateRevision"]})
        if error:
            return Retry(error)
        return requeue_after(wait or None)

    def _owned(self, stateful_set: Object) -> dict[int, Pod]:
        name = stateful_set["metadata"]["name"]
        numbered = ((ordinal_of(name, pod), pod) for pod in self._pods.owned(stateful_set))
        return {ordinal: pod for ordinal, pod in numbered if ordinal is not None}

    async def _create(self, stateful_set: Object, ordinal: int, known: dict[str, Object], revisions: Revisions) -> str:
        spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
        for claim in rendered_claims(stateful_set, ordinal):
            with suppress(AlreadyExists):
                await self._caches.client.create(PERSISTENT_VOLUME_CLAIMS, claim)
                self._caches.recorder.record(
                    stateful_set,
                    "Normal",
                    "SuccessfulCreate",
                    f"Create Claim {claim['metadata']['name']} Pod {name}-{ordinal} in StatefulSet {name} success",
                    component=_STATEFUL_SET_CONTROLLER,
                )
        start = (spec.get("ordinals") or {}).get("start", 0)
        partition = (spec["updateStrategy"].get("rollingUpdate") or {}).get("partition", 0)
        revision = revisions.current if ordinal < start + partition else revisions.update
        pod = rendered_pod(stateful_set, ordinal, template_of(known[revision]), revision)
        _, error = await self._pods.create(stateful_set, [pod])
        return error


def _revisions(stateful_set: Object, known: dict[str, Object], update: str) -> Revisions:
    current = (stateful_set.get("status") or {}).get("currentRevision", "")
    return Revisions(current if current in known else update, update)


def template_of(revision: Object) -> Object:
    """The pod template that was recorded."""
    recorded: Object = revision["data"]["spec"]["template"]
    return {key: value for key, value in recorded.items() if key != "$patch"}


class RevisionHistory:
    """The revisions of one owner at a time, read from the API: they change rarely."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, owner: Object) -> list[Object]:
        """Oldest first."""
        metadata = owner["metadata"]
        listed = (await self._client.list(CONTROLLER_REVISIONS, namespace=metadata["namespace"])).items
        owned = [revision for revision in listed if _is_owned(revision, metadata["uid"])]
        return sorted(owned, key=lambda revision: int(revision["revision"]))

    async def update_revision(self, owner: Object, known: Sequence[Object]) -> Object:
        """The revision of the owner's template, which is created, or becomes the newest again after an undo."""
        template = owner["spec"]["template"]
        number = known[-1]["revision"] + 1 if known else 1
        equal = next((old for old in reversed(known) if same_template(template_of(old), template)), None)
        if equal is not None and equal is known[-1]:
            return equal
        if equal is not None:
            return await self._client.replace(CONTROLLER_REVISIONS, equal | {"revision": number})
        metadata = owner["metadata"]
        digest = template_hash(template, (owner.get("status") or {}).get("collisionCount"))
        name = f"{metadata['name']}-{digest}"
        revision = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**(template["metadata"].get("labels") or {}), _HASH: digest},
                "ownerReferences": [controller_reference(owner)],
            },
            "data": {"spec": {"template": copied(template) | {"$patch": "replace"}}},
            "revision": number,
        }
        with suppress(AlreadyExists):
            return await self._client.create(CONTROLLER_REVISIONS, revision)
        return await self._client.get(CONTROLLER_REVISIONS, name, namespace=metadata["namespace"])

    async def prune(self, owner: Object, known: Sequence[Object], used: Collection[str]) -> None:
        """Deletes the oldest revisions beyond the limit that no pod has; `used` are names."""
        unused = [revision for revision in known if revision["metadata"]["name"] not in used]
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        for revision in unused[: max(0, len(unused) - limit)]:
            with suppress(NotFound):
                metadata = revision["metadata"]
                await self._client.delete(CONTROLLER_REVISIONS, metadata["name"], namespace=metadata["namespace"])


def _is_owned(revision: Object, uid: str) -> bool:
    owner = raw_metadata(revision).controller
    return owner is not None and owner.uid == uid
