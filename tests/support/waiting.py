"""Waiting for what happens elsewhere, with a deadline and a message that says what was seen last."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_SHOWN = 2000


async def eventually(look: Callable[[], Awaitable[T]], done: Callable[[T], object], *, seconds: float = 30) -> T:
    """What `look` sees once `done` says yes to it. Between looks it yields a moment, never longer than needed."""
    deadline = time.monotonic() + seconds
    while True:
        seen = await look()
        if done(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s; seen last: {str(seen)[:_SHOWN]}")
        await asyncio.sleep(0.02)
