"""A task that runs during a test and is cancelled at its end."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Runs the coroutine while the block does, and cancels it afterwards."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
