"""Runs the components of the cluster process: one that fails is logged, reported and restarted with back-off."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from trainwright.kube.client.retries import backoff

log = logging.getLogger(__name__)

_FIRST_BACKOFF, _MAX_BACKOFF = 0.1, 30.0
_HEALTHY_SECONDS = 10.0
"""A component that ran this long is healthy: its failure is forgotten and its back-off reset."""


class ComponentManager:
    """Each component is a function that runs until it is cancelled; if it returns or raises, it has failed."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, str] = {}

    @property
    def failures(self) -> dict[str, str]:
        """Components that failed and are not healthy again, each with the reason."""
        return dict(self._failures)

    def start(self, name: str, component: Callable[[], Awaitable[None]]) -> None:
        self._tasks[name] = asyncio.create_task(self._keep_running(name, component), name=name)

    async def stop(self) -> None:
        """Cancels all components one after the other, the last started first."""
        for task in reversed(self._tasks.values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tasks.clear()

    async def _keep_running(self, name: str, component: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            recovery = loop.call_later(_HEALTHY_SECONDS, self._failures.pop, name, None)
            started = loop.time()
            try:
                await component()
                reason = "it ended unexpectedly"
                log.error("%s: %s; restarting it", name, reason)
            except Exception as error:
                cause = _first_cause(error)
                reason = f"{type(cause).__name__}: {cause}"
                log.exception("%s failed; restarting it", name)
            finally:
                recovery.cancel()
            failures = 0 if loop.time() - started >= _HEALTHY_SECONDS else failures + 1
            self._failures[name] = reason
            jitter = random.random()  # noqa: S311
            await asyncio.sleep(backoff(failures, jitter=jitter, first=_FIRST_BACKOFF, longest=_MAX_BACKOFF))


def _first_cause(error: BaseException) -> BaseException:
    """Components are task groups: the message of an exception group does not name the cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
