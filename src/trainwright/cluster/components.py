"""Keeps the parts of the cluster process running: a part that ends is logged, shown as a problem and started again."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_HEALTHY_SECONDS = 10.0
"""A part that ran this long is well again: its next pause is the shortest, and its problem is over."""


class Supervisor:
    """Each part is a function that runs until it is cancelled; anything else it does counts as a crash."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """Parts that crashed and have not been well since, each with the reason."""
        return dict(self._problems)

    def start(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        self._tasks[name] = asyncio.create_task(self._keep_running(name, part), name=name)

    async def stop(self) -> None:
        """Cancels all parts, the last started first, each before the next."""
        for task in reversed(self._tasks.values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tasks.clear()

    async def _keep_running(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        crashes = 0
        while True:
            recovery = loop.call_later(_HEALTHY_SECONDS, self._problems.pop, name, None)
            started = loop.time()
            try:
                await part()
                reason = "it ended without being asked to"
                log.error("%s: %s; starting it again", name, reason)
            except Exception as error:
                cause = _first_cause(error)
                reason = f"{type(cause).__name__}: {cause}"
                log.exception("%s crashed; starting it again", name)
            finally:
                recovery.cancel()
            crashes = 0 if loop.time() - started >= _HEALTHY_SECONDS else crashes + 1
            self._problems[name] = reason
            pause = min(_FIRST_PAUSE * 2 ** min(crashes, 20), _LONGEST_PAUSE)
            await asyncio.sleep(pause * (0.5 + 0.5 * random.random()))  # noqa: S311


def _first_cause(error: BaseException) -> BaseException:
    """Parts are groups of tasks: what a group says of itself tells nobody anything."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
