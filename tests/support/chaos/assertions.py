"""What must hold after the operator was disturbed: jobs, pods, events and counters are exactly those of the script."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.chaos.extra_objects import extra_objects
from tests.support.chaos.operator_process import OperatorProcess
from tests.support.chaos.pod_invariants import PodInvariants
from tests.support.chaos.scripted_jobs import SCRIPTED_KINDS, ScriptedJob
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.event_correlator import COMBINED_PREFIX
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS


def expected_counters(jobs: list[ScriptedJob]) -> Counter[str]:
    """The sum that the counters of all operator processes should reach."""
    restarted = sum(job.replacements for job in jobs)
    return Counter({"created": len(jobs), "successful": len(jobs), "restarted": restarted})


async def assert_counters(operator: OperatorProcess, jobs: list[ScriptedJob]) -> None:
    """A process that ran all the time has counted everything once. It counts a state when the answer to the status
    write arrives, or at the next reconcile if the answer was lost: a moment after other clients can see it."""
    await eventually(operator.counters, lambda counted: counted == expected_counters(jobs))


def assert_no_traceback(log: Path) -> None:
    """Errors of the API server are expected and logged in one line; an unhandled exception is a defect."""
    assert "Traceback" not in log.read_text()


async def all_succeeded(
    client: Client, namespace: str, *operators: OperatorProcess, seconds: float = 240
) -> dict[str, Object]:
    """The jobs by name, once all of them have succeeded; none of the operators may end meanwhile."""

    async def unfinished() -> dict[str, str]:
        for operator in operators:
            operator.check()
        try:
            found = await _listed(client, namespace)
        except (ApiError, Unreachable) as error:
            return {"": str(error)}  # the API server may just have been stopped
        return {job["metadata"]["name"]: str(job.get("status")) for job in found if not _is(job, "Succeeded")}

    await eventually(unfinished, lambda jobs: not jobs, seconds=seconds)
    return {job["metadata"]["name"]: job for job in await _listed(client, namespace)}


def assert_ran_exactly_once(jobs: list[ScriptedJob], found: dict[str, Object], invariants: PodInvariants) -> None:
    """Every rank had exactly the pods of the script, one at a time, every job had its extra objects once, and its
    status says so."""
    _same("violations", [*invariants.violations, *invariants.extras.violations], [])
    extras = {(job.name, *one): 1 for job in jobs for one in extra_objects(job.kind, job.name)}
    _same("extra objects created", dict(invariants.extras.created), extras)
    scripted = {pod: len(ends) for job in jobs for pod, ends in job.ends.items()}
    _same("pods created", dict(invariants.created), scripted)
    status = {name: job["status"] for name, job in found.items()}
    restarts = {name: one.get("restarts", {}) for name, one in status.items()}
    _same("restarts", restarts, {job.name: job.restarts for job in jobs})
    _same("failed jobs", [name for name, job in found.items() if _is(job, "Failed")], [])
    # A job may finish before the end of the pods that do not decide is known.
    deciding = {job.name: job.deciding_role for job in jobs}
    _same(
        "pods that decided",
        {name: one["completedIndexes"][deciding[name]] for name, one in status.items()},
        {job.name: "0" for job in jobs},
    )


async def assert_events_happened(client: Client, namespace: str, jobs: list[ScriptedJob]) -> None:
    """Every event reports something that happened, and only once. Lost events are allowed."""
    recorded: Counter[tuple[str, str, str]] = Counter()
    combined: Counter[tuple[str, str]] = Counter()
    for event in (await client.list(EVENTS, namespace=namespace)).items:
        name, reason, message = event["involvedObject"]["name"], event["reason"], _without_numbers(event["message"])
        if reason.startswith(("FailedCreate", "FailedUpdate", "FailedDelete")):
            continue
        if message.startswith(COMBINED_PREFIX):
            combined[name, reason] += event["count"]
        else:
            recorded[name, reason, message] += event["count"]
    allowed: Counter[tuple[str, str, str]] = Counter()
    for job in jobs:
        for reason, message, times in _possible_events(job, namespace):
            allowed[job.name, reason, _without_numbers(message)] += times
    _same("events", recorded - allowed, Counter())
    # Combined events show only a number: it must not exceed that of the occurrences without an event of their own.
    unrecorded: Counter[tuple[str, str]] = Counter()
    for (name, reason, _), times in (allowed - recorded).items():
        unrecorded[name, reason] += times
    _same("combined events", combined - unrecorded, Counter())


async def _listed(client: Client, namespace: str) -> list[Object]:
    return [job for kind in SCRIPTED_KINDS for job in (await client.list(kind.resource, namespace=namespace)).items]


def _possible_events(job: ScriptedJob, namespace: str) -> Iterator[tuple[str, str, int]]:
    """Reason, message and how often it may occur."""
    kind, is_tensorflow = job.kind.name, job.kind.name == "TFJob"
    succeeded = f"{namespace}/{job.name}" if is_tensorflow else f"{job.name} is"
    yield f"{kind}Succeeded", f"{kind} {succeeded} successfully completed.", 1
    for pod, ends in job.ends.items():
        yield "SuccessfulCreatePod", f"Created pod: {pod}", len(ends)
        yield "SuccessfulDeletePod", f"Deleted pod: {pod}", len(ends) - 1
        if job.has_services:
            yield "SuccessfulCreateService", f"Created service: {pod}", 1
        for end in ends:
            if end.exit_code is not None:
                yield "ExitedWithCode", f"Pod: {namespace}.{pod} exited with code {end.exit_code}", 1
        # Upstream records two events with different texts, of a TFJob one.
        for subject, number in (("job", ""), *([] if is_tensorflow else [(kind, "1 ")])):
            message = f"{subject} {job.name} is restarting because {number}{job.role_of(pod)} replica(s) failed."
            yield f"{kind}Restarting", message, len(ends) - 1


def _without_numbers(message: str) -> str:
    """Failures of one reconcile share an event: how many they are depends on timing."""
    return re.sub(r"because \d+ ", "because N ", message)


def _same(what: str, found: object, wanted: object) -> None:
    """Asserts equality; of two mappings the message shows only what differs."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
        found, wanted = ({key: one.get(key) for key in keys} for one in (found, wanted))
    assert found == wanted, f"{what}: {found} instead of {wanted}"


def _is(job: Object, condition: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)
