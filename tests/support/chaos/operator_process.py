"""What the tests share that disturb the operator: its process, and the verdict on jobs when all is over."""

import asyncio
import os
import re
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support.chaos.pod_invariants import PodInvariants
from tests.support.chaos.scripted_jobs import ScriptedJob, role_of
from tests.support.cluster.controlplane import Daemon, held_port
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.event_correlator import COMBINED_PREFIX
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS

WHOLE = os.environ.get("HYPOTHESIS_PROFILE") == "all"
"""`make test-all`: as many disturbances as promised; else a seeded sample of them."""


class OperatorProcess(Daemon):
    """`trainwright operator` for one namespace, with its metrics on a port of their own."""

    def __init__(self, kubeconfig: Path, namespace: str, *flags: str, log: Path) -> None:
        self._place = held_port()
        self._port: int = self._place.getsockname()[1]
        super().__init__(
            *(sys.executable, "-m", "trainwright", "operator"),
            *("--kubeconfig", kubeconfig, "--namespace", namespace),
            f"--metrics-bind-address=127.0.0.1:{self._port}",
            "--health-probe-bind-address=0",
            "--webhook-server-port=0",
            *flags,
            log=log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._place.close()

    async def counters(self) -> Counter[str]:
        """What it has counted of jobs, by the word in the middle of the counter's name; nothing before it serves."""
        return await asyncio.to_thread(self._scrape)

    def _scrape(self) -> Counter[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as page:
                text = page.read().decode()
        except OSError:
            return Counter()
        found = re.findall(r"^training_operator_jobs_(\w+)_total{[^}]*} ([0-9.]+)$", text, re.MULTILINE)
        return Counter({word: int(float(number)) for word, number in found})


def expected_counters(jobs: list[ScriptedJob]) -> Counter[str]:
    """What all processes together should have counted."""
    restarted = sum(job.replacements for job in jobs)
    return Counter({"created": len(jobs), "successful": len(jobs), "restarted": restarted})


async def assert_counters(operator: OperatorProcess, jobs: list[ScriptedJob]) -> None:
    """One process that saw it all has counted all of it, and nothing twice. What a status makes true is counted when
    the answer to its write has come (or, if that is lost, when the job was looked at again): a moment after everybody
    else can see it."""
    await eventually(operator.counters, lambda counted: counted == expected_counters(jobs))


def assert_no_traceback(log: Path) -> None:
    """Trouble with the server is expected and said in a line; an exception that nobody expected is not."""
    assert "Traceback" not in log.read_text()


async def all_succeeded(
    client: Client, namespace: str, *operators: OperatorProcess, seconds: float = 100
) -> dict[str, Object]:
    """The jobs by name, once all of them have succeeded; none of the operators may end meanwhile."""

    async def unfinished() -> dict[str, str]:
        for operator in operators:
            operator.check()
        try:
            found = (await client.list(PYTORCH.resource, namespace=namespace)).items
        except (ApiError, Unreachable) as error:
            return {"": str(error)}  # the server may have been taken away a moment ago
        return {job["metadata"]["name"]: str(job.get("status")) for job in found if not _is(job, "Succeeded")}

    await eventually(unfinished, lambda jobs: not jobs, seconds=seconds)
    return {job["metadata"]["name"]: job for job in (await client.list(PYTORCH.resource, namespace=namespace)).items}


def assert_ran_exactly_once(jobs: list[ScriptedJob], found: dict[str, Object], invariants: PodInvariants) -> None:
    """Every rank had exactly the pods of the script, one at a time, and every job's status says so."""
    _same("violations", invariants.violations, [])
    scripted = {pod: len(ends) for job in jobs for pod, ends in job.ends.items()}
    _same("pods created", dict(invariants.created), scripted)
    status = {name: job["status"] for name, job in found.items()}
    restarts = {name: one.get("restarts", {}) for name, one in status.items()}
    _same("restarts", restarts, {job.name: job.restarts for job in jobs})
    _same("failed jobs", [name for name, job in found.items() if _is(job, "Failed")], [])
    # The master decides: when its end is known before that of a worker, the job has ended all the same.
    _same(
        "finished masters",
        {name: one["completedIndexes"]["Master"] for name, one in status.items()},
        {job.name: "0" for job in jobs},
    )


async def assert_events_happened(client: Client, namespace: str, jobs: list[ScriptedJob]) -> None:
    """No event tells of something that did not happen, or of one thing twice. One that got lost is not missed."""
    told: Counter[tuple[str, str, str]] = Counter()
    combined: Counter[tuple[str, str]] = Counter()
    for event in (await client.list(EVENTS, namespace=namespace)).items:
        name, reason, message = event["involvedObject"]["name"], event["reason"], _without_numbers(event["message"])
        if reason in {"FailedCreatePod", "FailedDeletePod", "FailedCreateService"}:
            continue
        if message.startswith(COMBINED_PREFIX):
            combined[name, reason] += event["count"]
        else:
            told[name, reason, message] += event["count"]
    allowed: Counter[tuple[str, str, str]] = Counter()
    for job in jobs:
        for reason, message, times in _news(job, namespace):
            allowed[job.name, reason, _without_numbers(message)] += times
    _same("events", told - allowed, Counter())
    # Of those that were combined only the number is known: what may have happened and is not told one by one.
    untold: Counter[tuple[str, str]] = Counter()
    for (name, reason, _), times in (allowed - told).items():
        untold[name, reason] += times
    _same("combined events", combined - untold, Counter())


def _news(job: ScriptedJob, namespace: str) -> Iterator[tuple[str, str, int]]:
    """Reason, message and how often at most."""
    yield "PyTorchJobSucceeded", f"PyTorchJob {job.name} is successfully completed.", 1
    for pod, ends in job.ends.items():
        yield "SuccessfulCreatePod", f"Created pod: {pod}", len(ends)
        yield "SuccessfulDeletePod", f"Deleted pod: {pod}", len(ends) - 1
        yield "SuccessfulCreateService", f"Created service: {pod}", 1
        for end in ends:
            yield "ExitedWithCode", f"Pod: {namespace}.{pod} exited with code {end.exit_code}", 1
        # Upstream has two ways to say it, and says both.
        for subject in ("job", "PyTorchJob"):
            many = "1 " if subject == "PyTorchJob" else ""
            message = f"{subject} {job.name} is restarting because {many}{role_of(pod)} replica(s) failed."
            yield "PyTorchJobRestarting", message, len(ends) - 1


def _without_numbers(message: str) -> str:
    """Failures that were seen together are told together: how many it were is chance."""
    return re.sub(r"because \d+ ", "because N ", message)


def _same(what: str, found: object, wanted: object) -> None:
    """Of two large mappings only the difference is worth reading."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
        found, wanted = ({key: one.get(key) for key in keys} for one in (found, wanted))
    assert found == wanted, f"{what}: {found} instead of {wanted}"


def _is(job: Object, condition: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)
