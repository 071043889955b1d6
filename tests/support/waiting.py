"""Waiting for a condition, with a deadline and an error that shows the last value."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_SHOWN = 2000


async def eventually(read: Callable[[], Awaitable[T]], done: Callable[[T], object], *, seconds: float = 60) -> T:
    """Calls `read` until `done` is true of its result, and returns that result."""
    deadline = time.monotonic() + seconds
    while True:
        value = await read()
        if done(value):
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s; last value: {str(value)[:_SHOWN]}")
        await asyncio.sleep(0.02)


def wait_until(done: Callable[[], object], *, seconds: float = 60) -> None:
    """The same without an event loop."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.02)
