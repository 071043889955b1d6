"""An operator for the length of a test, in the test's own event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.operator import Operator


@asynccontextmanager
async def running_operator(client: Client, **options: Any) -> AsyncIterator[Operator]:
    """Ready when entered; stopped in good order when left, and a failure of its own fails the test."""
    operator = Operator(client, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(operator.run())
        async with asyncio.timeout(15):
            await operator.ready.wait()
        try:
            yield operator
        finally:
            operator.stop()


async def settled(operator: Operator, *, counts: bool = True) -> None:
    """Nothing is being worked on and nothing waits, events included; without `counts` an Event that is there may still
    have to say how often it has happened, which takes its time."""

    async def outstanding() -> int:
        queue = operator._queue
        waiting = [
            tally for recorder in operator._recorders.values() for lane in recorder._waiting.values() for tally in lane
        ]
        busy = len(queue) + len(queue._working) + len(queue._resting)
        return busy + sum(counts or not tally.written for tally in waiting)

    await eventually(outstanding, lambda count: count == 0)
