"""Decides about one StatefulSet: which pod to create or delete next, and its status."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright.cluster.controllers.workloads.plans.owned_pods import available_at
from trainwright.cluster.controllers.workloads.plans.pod_template import REVISION_HASH, render_pod
from trainwright.objects import Object, copied
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import controller_reference

_ORDINAL = re.compile(r"(.*)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class StatefulSetPlan:
    create: tuple[int, ...] = ()
    """Ordinals."""
    delete: tuple[Pod, ...] = ()
    wait: float | None = None
    """Seconds until a pod becomes available."""
    blocked: bool = False
    """Nothing else may happen before a pod has changed."""


@dataclass(frozen=True, slots=True)
class Revisions:
    """The names of the revision that pods had, and of the one that they are to have."""

    current: str
    update: str


def ordinal_of(name: str, pod: Pod) -> int | None:
    """The number in the name of a pod of the set of that name."""
    found = _ORDINAL.fullmatch(pod.metadata.name)
    return int(found[2]) if found and found[1] == name else None


def plan_stateful_set(
    stateful_set: Object, pods: Mapping[int, Pod], revisions: Revisions, now: datetime
) -> StatefulSetPlan:
    """`pods` by ordinal. With OrderedReady each pod waits until the one before it is available."""
    if "deletionTimestamp" in stateful_set["metadata"]:
        return StatefulSetPlan()
    spec = stateful_set["spec"]
    start = (spec.get("ordinals") or {}).get("start", 0)
    wanted = range(start, start + spec["replicas"])
    plan = (_in_order if spec["podManagementPolicy"] == "OrderedReady" else _parallel)(spec, wanted, pods, now)
    if plan.create or plan.delete or plan.blocked:
        return plan
    return _update(spec, wanted, pods, revisions, now)


def _in_order(spec: Object, wanted: range, pods: Mapping[int, Pod], now: datetime) -> StatefulSetPlan:
    for ordinal in wanted:
        pod = pods.get(ordinal)
        if pod is None:
            return StatefulSetPlan(create=(ordinal,))
        if pod.finished and not pod.metadata.terminating:
            return StatefulSetPlan(delete=(pod,))
        if (wait := _unavailable(pod, spec, now)) is not None:
            return StatefulSetPlan(blocked=True, wait=wait or None)
    for ordinal in sorted((number for number in pods if number not in wanted), reverse=True):
        pod = pods[ordinal]
        return StatefulSetPlan(blocked=True) if pod.metadata.terminating else StatefulSetPlan(delete=(pod,))
    return StatefulSetPlan()


def _parallel(_spec: Object, wanted: range, pods: Mapping[int, Pod], _now: datetime) -> StatefulSetPlan:
    missing = tuple(ordinal for ordinal in wanted if ordinal not in pods)
    surplus = tuple(
        pod for ordinal, pod in pods.items() if not pod.metadata.terminating and (ordinal not in wanted or pod.finished)
    )
    return StatefulSetPlan(create=missing, delete=surplus)


def _update(
    spec: Object, wanted: range, pods: Mapping[int, Pod], revisions: Revisions, now: datetime
) -> StatefulSetPlan:
    """Replaces outdated pods from the last ordinal down to the partition, one at a time."""
    if spec["updateStrategy"]["type"] != "RollingUpdate":
        return StatefulSetPlan()
    partition = (spec["updateStrategy"].get("rollingUpdate") or {}).get("partition", 0)
    for ordinal in reversed(wanted):
        if ordinal < wanted.start + partition:
            break
        pod = pods.get(ordinal)
        if pod is None or pod.metadata.terminating:
            return StatefulSetPlan()
        if pod.metadata.labels.get(REVISION_HASH) != revisions.update:
            return StatefulSetPlan(delete=(pod,))
        if (wait := _unavailable(pod, spec, now)) is not None:
            return StatefulSetPlan(wait=wait or None)
    return StatefulSetPlan()


def _unavailable(pod: Pod, spec: Object, now: datetime) -> float | None:
    """None if the pod is available, else the seconds that have to pass; 0 if something else has to happen."""
    if pod.metadata.terminating or pod.phase != "Running" or not pod.ready:
        return 0.0
    seconds = spec.get("minReadySeconds", 0)
    moment = available_at(pod, seconds) if seconds else now
    if moment is None:
        return 0.0
    return None if moment <= now else (moment - now).total_seconds()


def rendered_pod(stateful_set: Object, ordinal: int, template: Object, revision: str) -> Object:
    """The pod of that ordinal, with its own name, host name and claims."""
    name = stateful_set["metadata"]["name"]
    pod_name = f"{name}-{ordinal}"
    labels = {
        "statefulset.kubernetes.io/pod-name": pod_name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION_HASH: revision,
    }
    pod = render_pod(stateful_set, template, name=pod_name, labels=labels)
    pod["metadata"].pop("generateName", None)
    spec = pod["spec"]
    spec["hostname"] = pod_name
    if service := stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = service
    claims = {
        template["metadata"]["name"]: template for template in stateful_set["spec"].get("volumeClaimTemplates") or ()
    }
    volumes = [{"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{pod_name}"}} for volume in claims]
    others = [volume for volume in spec.get("volumes") or () if volume["name"] not in claims]
    if volumes or others:
        spec["volumes"] = [*volumes, *others]
    return pod


def rendered_claims(stateful_set: Object, ordinal: int) -> list[Object]:
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    kept_for_ever = (spec.get("persistentVolumeClaimRetentionPolicy") or {}).get("whenDeleted") != "Delete"
    claims = []
    for template in spec.get("volumeClaimTemplates") or ():
        own = template["metadata"]
        claim: Object = {
            "name": f"{own['name']}-{metadata['name']}-{ordinal}",
            "namespace": metadata["namespace"],
            "labels": {**(own.get("labels") or {}), **selected},
            "annotations": own.get("annotations") or {},
        }
        if not kept_for_ever:
            claim["ownerReferences"] = [controller_reference(stateful_set) | {"blockOwnerDeletion": True}]
        claims.append(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": copied(template["spec"])}
        )
    return claims


def stateful_set_status(stateful_set: Object, pods: Sequence[Pod], revisions: Revisions, now: datetime) -> Object:
    spec = stateful_set["spec"]
    live = [pod for pod in pods if not pod.metadata.terminating]
    ready = [pod for pod in live if pod.phase == "Running" and pod.ready]
    hashes = [pod.metadata.labels.get(REVISION_HASH) for pod in live]
    current, updated = revisions.current, hashes.count(revisions.update)
    if updated == spec["replicas"] == len(ready) == len(pods) and spec["updateStrategy"]["type"] == "RollingUpdate":
        current = revisions.update
    counts = {
        "readyReplicas": len(ready),
        "currentReplicas": hashes.count(current),
        "updatedReplicas": updated,
        "observedGeneration": stateful_set["metadata"].get("generation", 0),
    }
    return {
        "replicas": len(pods),
        **{name: count for name, count in counts.items() if count},
        "availableReplicas": sum(_unavailable(pod, spec, now) is None for pod in ready),
        "collisionCount": (stateful_set.get("status") or {}).get("collisionCount", 0),
        "currentRevision": current,
        "updateRevision": revisions.update,
    }
