"""However the facts about a failed job are gathered, the verdict is the same."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder, at
from trainwright.api.kinds import PYTORCH
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.jobs.failure import diagnose_pods
from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.jobs.recorded_runs import recorded_runs
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.targets import Target
from trainwright.cluster.facade import DataDir, pod_records
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.containers.cri_log import LogFile
from trainwright.cluster.node.supervisor.files import write_json
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.job_diagnosis import diagnose_job
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import runs_in_status
from trainwright.objects.times import format_micro_time, format_time

LOGS = (
    (),
    ("Traceback (most recent call last):", "ValueError: boom"),
    ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'flash'"),
    ("Traceback (most recent call last):", "RuntimeError: Connection reset by peer"),
    ("Traceback (most recent call last):", "RuntimeError: wait timeout after 1800000ms"),
)


@dataclass(frozen=True)
class Life:
    """How the only container of a rank ended; `code` None: it runs, or the whole pod was evicted."""

    code: int | None
    second: int
    log: tuple[str, ...]
    evicted: bool = False

    @property
    def end(self) -> float:
        return at(self.second).timestamp()

    def pod(self, rank: str) -> PodBuilder:
        role, _, index = rank.partition("-")
        pod = PodBuilder(role.capitalize(), int(index))
        if self.code is None:
            return pod.failed(None).reason("Evicted", "low on memory") if self.evicted else pod.running()
        return (pod.failed if self.code else pod.succeeded)(self.code, finished=at(self.second))


lives = st.builds(
    Life,
    code=st.sampled_from([None, 0, 1, 3, 134, 137, 143]),
    second=st.integers(0, 40),
    log=st.sampled_from(LOGS),
    evicted=st.booleans(),
)
jobs = st.tuples(st.lists(lives, min_size=1, max_size=3), st.none() | st.integers(0, 50))
RANKS = ("master-0", "worker-0", "worker-1")


def job(failed_after: int | None) -> Object:
    status: Object = {"conditions": [{"type": "Failed", "status": "True"}]}
    if failed_after is not None:
        status["completionTime"] = format_time(at(failed_after))
    return JobBuilder().master().workers(2).status(status).raw()


class Logs:
    """A client that has only logs, of pods that have failed."""

    def __init__(self, found: dict[str, Life]) -> None:
        self._found = found

    def logs(self, pod: str, **_: Any) -> Iterator[bytes]:
        life = self._found[pod]
        yield from (f"{format_micro_time(at(life.second))} {line}\n".encode() for line in life.log)


def session(found: dict[str, Life], data: DataDir | None = None) -> Session:
    target = Target(ClusterConfig(server=""), embedded=data is not None, kubectl="kubectl", data=data)
    return Session(target, cast("SyncClient", Logs(found)))


@given(jobs)
def test_the_statuses_of_pods_give_one_verdict(facts: tuple[list[Life], int | None]) -> None:
    found = dict(zip(RANKS, facts[0], strict=False))
    failed, pods = job(facts[1]), {rank: life.pod(rank) for rank, life in found.items()}
    state = JobState(JobBuilder().master().workers(2).job(), JOB_UID)
    state.update_job(failed)
    runs = []
    for rank, life in found.items():
        state.update_pod(pods[rank].raw())
        for run in runs_in_status(pods[rank].pod(), rank):
            lines = tuple(life.log) if run.exit_code else ()
            for line in lines:
                state.add_line(run, line, life.end)
            [kept] = [one for one in state.runs() if one.key == run.key]
            runs.append(replace(run, lines=kept.lines))

    ranks = [RankPod(rank, (0, 0), f"digits-{rank}", "", pods[rank].pod()) for rank in found]
    by_pod = {f"digits-{rank}": life for rank, life in found.items()}
    described = diagnose_pods(session(by_pod), FoundJob(PYTORCH, failed), ranks)

    verdict = diagnose_job(failed, runs, [(rank, pod.pod()) for rank, pod in pods.items()])
    assert without_order(state.diagnosis()) == without_order(described) == without_order(verdict)


@settings(max_examples=30)
@given(jobs)
def test_the_records_of_the_node_give_one_verdict(facts: tuple[list[Life], int | None]) -> None:
    found = dict(zip(RANKS, facts[0], strict=False))
    failed, pods = job(facts[1]), {rank: life.pod(rank) for rank, life in found.items()}
    with tempfile.TemporaryDirectory() as directory:
        data = DataDir(Path(directory))
        for rank, life in found.items():
            record(data, rank, life, pods[rank].raw())
        records = pod_records(data, JOB_UID)
        state = JobState(JobBuilder().master().workers(2).job(), JOB_UID)
        state.update_job(failed)
        state.update_records(records)
        for rank, life in found.items():
            state.update_pod(pods[rank].raw())
            for run in [one for one in state.runs() if one.rank == rank and one.exit_code != 0]:
                for line in life.log:
                    state.add_line(run, line, life.end)
        by_uid = {one.uid: one for one in records}
        ranks = [
            RankPod(rank, (0, 0), pod.pod().name, "", pod.pod(), by_uid[pod.pod().metadata.uid])
            for rank, pod in pods.items()
        ]
        described = diagnose_pods(session({}, data), FoundJob(PYTORCH, failed), ranks)

        # The operator's way.
        runs = recorded_runs(data, JOB_UID)
        verdict = diagnose_job(failed, runs, [(rank, pod.pod()) for rank, pod in pods.items()])
    assert without_order(state.diagnosis()) == without_order(described) == without_order(verdict)


def record(data: DataDir, rank: str, life: Life, pod: Object) -> None:
    """What node and supervisor write about a pod with one container."""
    metadata = pod["metadata"]
    directory = data.node / "pods" / metadata["uid"]
    (directory / "logs/pytorch").mkdir(parents=True)
    known = {name: metadata[name] for name in ("uid", "name", "namespace", "labels")}
    config = {**known, "owner": {"uid": JOB_UID}, "initContainers": [], "containers": [{"name": "pytorch"}]}
    write_json(str(directory / "pod.json"), config)
    start, end = (format_micro_time(at(second)).replace("Z", "000Z") for second in (0, life.second))
    status = container_status.new_status("pytorch", initialized=True)
    if life.code is not None:
        ended = container_status.terminated(exit_code=life.code, reason="Error", started_at=start, finished_at=end)
        status = container_status.with_finished_run(status, ended)
    elif not life.evicted:
        status = {**status, "state": container_status.running(start)}
    else:
        return
    write_json(str(directory / "state.json"), {"initContainers": [], "containers": [status]})
    log = LogFile(str(directory / "logs/pytorch/0.log"), limit=1 << 20)
    log.write("".join(f"{end} stderr F {line}\n" for line in life.log).encode())
    log.close()


def without_order(found: Diagnosis | None) -> Diagnosis | None:
    """Ranks that failed alike in the same moment are named in the order in which they were found."""
    return replace(found, alike=tuple(sorted(found.alike))) if found else None
