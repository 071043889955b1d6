"""Why a pod does not get on, told on the job, where its owner looks first."""

from collections.abc import Iterator

from trainwright.engine.draft import Draft
from trainwright.objects.pods import ContainerStatus, Pod


def report(draft: Draft) -> None:
    for pod in draft.children.pods.values():
        if not pod.finished and not pod.metadata.terminating:
            for reason, message in _problems(pod):
                draft.notice(reason, message)


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
    ended, waiting = status.state.terminated, status.state.waiting
    about = f"Error pod {pod.name} container {status.name}"
    if ended is not None and ended.exit_code != 0:
        yield ended.reason or "Error", f"{about} exitCode: {ended.exit_code} terminated message: {ended.message}"
    if waiting is not None and waiting.message:
        yield waiting.reason or "Waiting", f"{about} waiting message: {waiting.message}"
