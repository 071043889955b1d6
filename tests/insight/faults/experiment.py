"""Runs the faults of a list on the embedded cluster and compares the diagnosis with what the list says.

`python -m tests.insight.faults.experiment` runs them all with every cleanPodPolicy and prints the score.
"""

import argparse
import gzip
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from tests.support.cluster.embedded_cluster import up_command
from trainwright.api.kinds import PYTORCH
from trainwright.cli.jobs.recorded_runs import recorded_runs
from trainwright.cluster.facade import DataDir
from trainwright.insight.first_failing_rank import Diagnosis, first_failure
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.kinds.container_runs import ContainerRun, Line
from trainwright.objects.node_annotations import DIRECTORY, HOST_IMAGE

HERE = Path(__file__).parent
OBSERVED = HERE / "observed.jsonl.gz"
_KEPT_LINES = 500
POLICIES = ("None", "Running", "All")
_RANKS = {"master-0": 0, "worker-0": 1, "worker-1": 2}
_JOB_SECONDS = 180.0
_SETTLE_SECONDS = 10.0
_REPORT_SECONDS = 60.0
"""How long a diagnosis that is not certain is tried again after the job has failed."""
_MAX_ATTEMPTS = 3
_numbers = itertools.count()


@dataclass(frozen=True)
class Case:
    """One fault with one culprit."""

    fault: str
    form: str
    rank: str | int | None
    cause: str
    says: str

    def __str__(self) -> str:
        return f"{self.fault}@{self.rank}" + (f" ({self.form})" if self.form != "python" else "")

    @property
    def expected_rank(self) -> str | None:
        """The pod, and with torchrun the process in it."""
        if isinstance(self.rank, int):
            return f"{('master-0', 'worker-0')[self.rank // 2]} (local rank {self.rank % 2})"
        return self.rank


@dataclass(frozen=True)
class Result:
    case: Case
    policy: str
    runs: tuple[ContainerRun, ...]
    diagnosis: Diagnosis | None
    job: Object

    @property
    def named_rank(self) -> str | None:
        found = self.diagnosis
        if found is None or found.rank is None:
            return None
        return f"{found.rank} ({found.process})" if isinstance(self.case.rank, int) else found.rank

    @property
    def is_right(self) -> bool:
        found = self.diagnosis
        if found is None or self.named_rank != self.case.expected_rank:
            return False
        return found.cause == self.case.cause and self.case.says in found.summary

    @property
    def is_reported(self) -> bool:
        """Whether the operator has written the same to the job's status."""
        failure = self.job["status"].get("failure") or {}
        found = self.diagnosis
        return found is not None and (failure.get("rank"), failure.get("cause")) == (found.rank, found.summary)

    @property
    def names_wrong_rank(self) -> bool:
        found = self.diagnosis
        named = found.rank if found else None
        return named is not None and named != (self.case.expected_rank or "").partition(" ")[0]

    def __str__(self) -> str:
        verdict = "right" if self.is_right else "WRONG RANK" if self.names_wrong_rank else "wrong"
        found = self.diagnosis
        said = f"{found.cause}: {found.headline}" if found else "nothing"
        return f"{verdict:10} {self.case} {self.policy}: {said}"


def cases(name: str = "faults.yaml") -> list[Case]:
    return [
        Case(row["fault"], row.get("form", "python"), rank, row["cause"], row["says"])
        for row in yaml.safe_load((HERE / name).read_text())
        for rank in row["ranks"]
    ]


def manifest(case: Case, policy: str, name: str) -> Object:
    """A PyTorchJob that runs the program with the fault."""
    rank = _RANKS[case.rank] if isinstance(case.rank, str) else case.rank
    launcher = "python" if case.form == "python" else "torchrun"
    command = [
        launcher,
        str(HERE / "program.py"),
        f"--fault={case.fault}",
        *([] if rank is None else [f"--rank={rank}"]),
    ]
    container = {
        "name": "pytorch",
        "image": HOST_IMAGE,
        "command": command,
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    }
    replica = {"restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    workers = {"python": 2, "torchrun": 0, "torchrun-nodes": 1}[case.form]
    roles = {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": workers}}
    processes = {} if case.form == "python" else {"nprocPerNode": "2"}
    return {
        "apiVersion": PYTORCH.resource.api_version,
        "kind": PYTORCH.name,
        "metadata": {"name": name, "namespace": "default", "annotations": {DIRECTORY: str(HERE)}},
        "spec": {
            **processes,
            "runPolicy": {"cleanPodPolicy": policy},
            "pytorchReplicaSpecs": {role: spec for role, spec in roles.items() if spec["replicas"]},
        },
    }


def run_case(config: ClusterConfig, data: DataDir, case: Case, policy: str) -> Result:
    """Runs the job until it has failed and its diagnosis is certain, then deletes it. Again if another program of the
    machine took the port of the job just before its master, so that the fault was not reached."""
    for _ in range(_MAX_ATTEMPTS):
        result = _run_once(config, data, case, policy)
        if result.diagnosis is None or result.diagnosis.cause != "port-in-use" or case.cause == "port-in-use":
            break
    return result


def _run_once(config: ClusterConfig, data: DataDir, case: Case, policy: str) -> Result:
    client = SyncClient(config)
    job = client.create(PYTORCH.resource, manifest(case, policy, f"fault-{next(_numbers)}"))
    try:
        job = _wait_until_failed(client, job)
        settled = time.monotonic() + _SETTLE_SECONDS
        while True:
            runs = recorded_runs(data, job["metadata"]["uid"])
            diagnosis = first_failure(runs)
            if (diagnosis and diagnosis.certain) or time.monotonic() > settled:
                break
            time.sleep(0.2)
        return Result(case, policy, tuple(runs), diagnosis, _wait_for_report(client, job))
    finally:
        client.delete(PYTORCH.resource, job["metadata"]["name"], namespace="default")
        client.close()


def run_cases(
    config: ClusterConfig, data: DataDir, wanted: Sequence[tuple[Case, str]], *, parallel: int
) -> Iterator[Result]:
    with ThreadPoolExecutor(parallel) as pool:
        futures = [pool.submit(run_case, config, data, case, policy) for case, policy in wanted]
        for future in as_completed(futures):
            yield future.result()


def _wait_for_report(client: SyncClient, job: Object) -> Object:
    """The job with `status.failure`, which the operator writes a moment after the condition."""
    deadline = time.monotonic() + _REPORT_SECONDS
    while "failure" not in job["status"] and time.monotonic() < deadline:
        time.sleep(0.1)
        job = client.get(PYTORCH.resource, job["metadata"]["name"], namespace="default")
    return job


def _wait_until_failed(client: SyncClient, job: Object) -> Object:
    deadline = time.monotonic() + _JOB_SECONDS
    while time.monotonic() < deadline:
        job = client.get(PYTORCH.resource, job["metadata"]["name"], namespace="default")
        if find_condition(job.get("status") or {}, "Failed"):
            return job
        time.sleep(0.1)
    raise AssertionError(f"job {job['metadata']['name']} has not failed: {job.get('status')}")


def observed_results(path: Path = OBSERVED) -> list[Result]:
    """What earlier experiments observed, with the diagnosis of the present rules."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    results = []
    for row in rows:
        runs = [ContainerRun(**{**run, "lines": tuple(Line(*line) for line in run["lines"])}) for run in row["runs"]]
        results.append(Result(Case(**row["case"]), row["policy"], tuple(runs), first_failure(runs), {}))
    return results


def write_observed(results: Iterable[Result], path: Path = OBSERVED) -> None:
    lines = [json.dumps(_observed(one)) for one in sorted(results, key=lambda one: (str(one.case), one.policy))]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def _observed(result: Result) -> Object:
    """Without the paths of this machine and without most of the lines before the end."""
    runs = [
        {**asdict(run), "lines": [(_portable(text), at) for text, at in run.lines[-_KEPT_LINES:]]}
        for run in result.runs
    ]
    return {"case": asdict(result.case), "policy": result.policy, "runs": runs}


def _portable(text: str) -> str:
    for path, shown in ((sys.prefix, "/opt/env"), (sys.base_prefix, "/opt/python"), (str(HERE), "/work")):
        text = text.replace(path, shown)
    return text[:500]


def score(results: Iterable[Result]) -> str:
    known = list(results)
    right, wrong = sum(one.is_right for one in known), sum(one.names_wrong_rank for one in known)
    return f"{right} of {len(known)} right ({right / max(len(known), 1):.1%}), {wrong} with a wrong rank"


def sample(wanted: Sequence[tuple[Case, str]], size: int, seed: int) -> list[tuple[Case, str]]:
    return random.Random(seed).sample(wanted, min(size, len(wanted)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", default="faults.yaml")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--only", default="", help="part of the names of the faults")
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--sample", type=int, help="number of jobs; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help=f"write what was observed to {OBSERVED.name}")
    arguments = parser.parse_args()
    wanted = [
        (case, policy)
        for case in cases(arguments.list)
        for policy in arguments.policies.split(",")
        if arguments.only in str(case)
    ]
    if arguments.sample:
        wanted = sample(wanted, arguments.sample, arguments.seed)
    results = []
    with tempfile.TemporaryDirectory() as directory, up_command(Path(directory), "--python", sys.executable) as up:
        for result in run_cases(up.config, up.data, wanted, parallel=arguments.parallel):
            results.append(result)
            print(result, "" if result.is_reported else "(not so in status.failure)", flush=True)
    print(score(results))
    if arguments.record:
        write_observed(results)


if __name__ == "__main__":
    main()
