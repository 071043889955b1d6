"""An operator for the length of a test, in the test's own event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trainwright.kube.client import Client
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
