"""The ranks of a job: their pods from the API and, on the embedded cluster, what their pods left on the node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from trainwright.api.kinds import Kind
from trainwright.api.labels import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE, rank_of
from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.spelling import nearest
from trainwright.cluster.facade import PodRecord, pod_records
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun, runs_in_status
from trainwright.objects.kinds.pods import Pod, read_pod
from trainwright.objects.resources import PODS
from trainwright.objects.times import parse_time


@dataclass(frozen=True, slots=True)
class RankPod:
    """A pod of one rank: as the API has it, as the embedded node recorded it, or both."""

    rank: str
    """`worker-0`"""
    order: tuple[int, int]
    name: str
    uid: str
    pod: Pod | None = None
    """None if the Pod object has been deleted."""
    record: PodRecord | None = None
    """None on other clusters."""

    @property
    def runs(self) -> list[ContainerRun]:
        """The runs of its containers: all that the node has recorded, or else what the status of the pod shows."""
        if self.record:
            return [replace(run, rank=self.rank) for run in self.record.runs]
        return runs_in_status(self.pod, self.rank) if self.pod else []

    @property
    def started(self) -> float:
        """Seconds since the epoch, to order the pods of one rank."""
        if self.record and self.record.runs and self.record.runs[0].started_at:
            return self.record.runs[0].started_at
        created = self.pod.metadata.creation_timestamp if self.pod else None
        return parse_time(created).timestamp() if created else 0.0


def rank_order(labels: Mapping[str, str], kind: Kind) -> tuple[int, int]:
    """By role in the order of the kind, the deciding one first, then by index."""
    roles = [role.label for role in kind.roles]
    role, index = labels.get(REPLICA_TYPE, ""), labels.get(REPLICA_INDEX, "")
    return roles.index(role) if role in roles else len(roles), int(index) if index.isdecimal() else 0


def pod_objects(session: Session, job: FoundJob) -> list[Object]:
    """The job's existing pods as the API returns them."""
    listed = session.client.list(PODS, namespace=job.namespace, label_selector=f"{JOB_NAME}={job.name}").items
    return [obj for obj in listed if is_controlled_by(read_pod(obj), job.uid)]


def pods_of(session: Session, job: FoundJob) -> list[Pod]:
    """The job's existing pods, by rank."""
    pods = map(read_pod, pod_objects(session, job))
    return sorted(pods, key=lambda pod: rank_order(pod.metadata.labels, job.kind))


def is_controlled_by(pod: Pod, uid: str) -> bool:
    controller = pod.metadata.controller
    return controller is not None and controller.uid == uid


def rank_pods(session: Session, job: FoundJob) -> list[RankPod]:
    """All pods that the job has, and on the embedded cluster also those that it had; by rank, the oldest first."""
    pods = {pod.metadata.uid: pod for pod in pods_of(session, job)}
    data = session.target.data
    records = {record.uid: record for record in pod_records(data, job.uid)} if data else {}
    found = []
    for uid in {**pods, **records}:
        pod, record = pods.get(uid), records.get(uid)
        labels = record.labels if record else pod.metadata.labels if pod else {}
        name = record.name if record else pod.name if pod else ""
        order = rank_order(labels, job.kind)
        found.append(RankPod(rank_of(labels, name), order, name, uid, pod, record))
    return sorted(found, key=lambda pod: (pod.order, pod.rank, pod.started))


def latest_of_each_rank(pods: Iterable[RankPod]) -> list[RankPod]:
    """The last pod of each rank."""
    return list({pod.rank: pod for pod in pods}.values())


def select_rank(pods: Iterable[RankPod], wanted: str | None) -> list[RankPod]:
    """The pods of the rank that the user names: `worker-0`, or `0` for the first rank of all."""
    found = list(pods)
    if wanted is None:
        return found
    ranks = list(dict.fromkeys(pod.rank for pod in found))
    name = ranks[int(wanted)] if wanted.isdecimal() and int(wanted) < len(ranks) else wanted.lower()
    if chosen := [pod for pod in found if pod.rank == name or pod.name == wanted]:
        return chosen
    known = f"it has {', '.join(ranks)}" if ranks else "it has no pods yet"
    near = nearest(name, ranks)
    hint = f"did you mean {near}? {known[0].upper()}{known[1:]}" if near else known
    raise CommandError(f"the job has no rank {wanted}: {hint}")


def local_time(seconds: float) -> str:
    """`2026-11-15 22:40:01`, in the time zone of this machine."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
