"""Pods of TFJobs in given states, and the condition that they give the job: the tables of upstream's own tests."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.support.objects.jobs import JobBuilder, PodBuilder
from trainwright.api.kinds.tensorflow import TENSORFLOW


class TFJobState(NamedTuple):
    about: str
    roles: dict[str, str]
    """By role, the state of each of its pods: P(ending), R(unning), S(ucceeded), F(ailed); - if there is none."""
    condition: str | None
    """A condition that the job then has; None: none besides Created."""
    success_policy: str = ""
    policy: str = "Never"
    exit_code: int = 1

    def job(self, name: str) -> JobBuilder:
        builder = JobBuilder(name, kind=TENSORFLOW).spec(successPolicy=self.success_policy)
        for role, states in self.roles.items():
            builder.replica(role, len(states), policy=self.policy)
        return builder

    def pods(self, job: str) -> Iterator[tuple[str, int, PodBuilder]]:
        """Role, index and pod."""
        for role, states in self.roles.items():
            for index, state in enumerate(states):
                pod = PodBuilder(role, index, job=job, kind=TENSORFLOW)
                match state:
                    case "R":
                        pod.running()
                    case "S":
                        pod.succeeded()
                    case "F":
                        pod.failed(self.exit_code)
                if state != "-":
                    yield role, index, pod


NORMAL_PATH = [
    TFJobState("a job of one worker is created", {"Worker": "-"}, None),
    TFJobState("a job is created", {"Worker": "----", "PS": "--"}, None),
    TFJobState("all pods are pending", {"Worker": "PPPP", "PS": "PP"}, None),
    TFJobState("all pods run", {"Worker": "RRRR", "PS": "RR"}, "Running"),
    TFJobState("three pods are pending, the others do not exist", {"Worker": "PP--", "PS": "P-"}, None),
    TFJobState("three pods are pending, one worker runs", {"Worker": "PPR-", "PS": "P-"}, "Running"),
    TFJobState("three pods are pending, one worker has succeeded", {"Worker": "PPS-", "PS": "P-"}, None),
    TFJobState("all pods have succeeded", {"Worker": "SSSS", "PS": "SS"}, "Succeeded"),
]

WORKER_0 = [
    TFJobState("worker 0 runs", {"Worker": "R", "PS": "-"}, "Running"),
    TFJobState("worker 0 has succeeded", {"Worker": "S"}, "Succeeded"),
    # Without workers upstream's function says that worker 0 has succeeded. The master or chief decides nevertheless.
    TFJobState("no worker but a master", {"Master": "R"}, "Running"),
    TFJobState("no worker but a chief", {"Chief": "R"}, "Running"),
    # Upstream sets Failed too: the row on Succeeded and Failed of docs/compatibility.md.
    TFJobState("worker 0 has succeeded, worker 1 has failed", {"Worker": "SF"}, "Succeeded"),
    TFJobState("worker 0 has failed, worker 1 runs", {"Worker": "FR"}, "Failed"),
]

STATUS = [
    TFJobState("chief succeeded", {"Chief": "S", "Worker": "S"}, "Succeeded"),
    TFJobState("chief running", {"Chief": "R", "Worker": "-"}, "Running"),
    TFJobState("chief failed", {"Chief": "F", "Worker": "-"}, "Failed"),
    TFJobState("worker failed", {"Worker": "F"}, "Failed"),
    TFJobState("worker succeeded", {"Worker": "S"}, "Succeeded"),
    TFJobState("worker running", {"Worker": "R"}, "Running"),
    # In upstream's table the first two have succeeded, without an exit code. Real pods that succeed have one.
    TFJobState("2 workers succeeded, 2 running", {"Worker": "RRSS", "PS": "RR"}, "Running"),
    TFJobState("2 workers running, 2 failed", {"Worker": "FFRR", "PS": "RR"}, "Failed"),
    TFJobState("2 workers succeeded, 2 failed", {"Worker": "FFSS", "PS": "RR"}, "Failed"),
    TFJobState("worker 0 succeeded, 3 running", {"Worker": "SRRR", "PS": "RR"}, "Succeeded"),
    TFJobState("AllWorkers, worker 0 succeeded, 3 running", {"Worker": "SRRR"}, "Running", "AllWorkers"),
    TFJobState("AllWorkers, 4 succeeded", {"Worker": "SSSS"}, "Succeeded", "AllWorkers"),
    TFJobState("AllWorkers, 1 succeeded, 1 failed, 2 running", {"Worker": "SFRR"}, "Failed", "AllWorkers"),
    # The job has failed, and its condition Running is kept with the status False.
    TFJobState("chief running, workers failed", {"Chief": "R", "Worker": "FFFF", "PS": "RR"}, "Running"),
    TFJobState("chief running, workers succeeded", {"Chief": "R", "Worker": "SSSS", "PS": "RR"}, "Running"),
    TFJobState("chief running, a PS failed", {"Chief": "R", "Worker": "SSSS", "PS": "FR"}, "Failed"),
    TFJobState("chief failed, workers succeeded", {"Chief": "F", "Worker": "SSSS", "PS": "RR"}, "Failed"),
    TFJobState("chief succeeded, workers failed", {"Chief": "S", "Worker": "FFFF", "PS": "RR"}, "Succeeded"),
    TFJobState(
        "chief failed and restarting",
        {"Chief": "F", "Worker": "FFFF", "PS": "RR"},
        "Restarting",
        policy="ExitCode",
        exit_code=130,
    ),
]
