"""An operator in the test's own event loop, and waiting until it has no work left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.operator import JobController


@asynccontextmanager
async def running_operator(client: Client, **options: Any) -> AsyncIterator[JobController]:
    """Ready when entered and shut down when left. An exception of the operator fails the test."""
    operator = JobController(client, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(operator.run())
        async with asyncio.timeout(60):
            await operator.ready.wait()
        try:
            yield operator
        finally:
            operator.stop()


async def settled(operator: JobController, *, counts: bool = True) -> None:
    """Waits until no job is queued or reconciled and all events are written. Without `counts` the count of an existing
    Event may still be outdated: such updates are sent with a delay."""

    async def state() -> tuple[bool, int]:
        recorder = operator.recorder
        return operator.queue.is_idle, recorder.outstanding if counts else recorder.not_created

    await eventually(state, lambda found: found == (True, 0))
