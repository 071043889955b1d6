"""Reports why pods do not start, as events of the job, because users read the job's events first."""

from collections.abc import Iterator

from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.objects.kinds.pods import ContainerStatus, Pod


def report(facts: Facts, builder: PlanBuilder) -> None:
    for pod in facts.children.pods.ranked.values():
        if not pod.finished and not pod.metadata.terminating:
            for reason, message in _problems(pod):
                builder.warn(reason, message)


def _problems(pod: Pod) -> Iterator[tuple[str, str]]:
    containers = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    for status in containers:
        if status.state.running is None:
            yield from _container_problems(pod, status)
    if not containers and pod.status.conditions:
        newest = max(pod.status.conditions, key=lambda condition: condition.last_transition_time or "")
        if newest.status != "True":
            yield newest.reason or newest.type, f"Error pod {pod.name} condition message: {newest.message}"


def _container_problems(pod: Pod, status: ContainerStatus) -> Iterator[tuple[str, str]]:
    terminated, waiting = status.state.terminated, status.state.waiting
    about = f"Error pod {pod.name} container {status.name}"
    if terminated is not None and terminated.exit_code != 0:
        message = f"{about} exitCode: {terminated.exit_code} terminated message: {terminated.message}"
        yield terminated.reason or "Error", message
    if waiting is not None and waiting.message:
        yield waiting.reason or "Waiting", f"{about} waiting message: {waiting.message}"
