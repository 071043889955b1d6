"""Waiting for a condition, with a deadline and an error that shows the last value."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_SHOWN = 2000
_SHORTEST, _LONGEST = 0.01, 0.1
_SHARE = 0.1
"""Of the time that a test has waited, the share after which it asks again: what takes long is asked for less often."""


async def eventually(read: Callable[[], Awaitable[T]], done: Callable[[T], object], *, seconds: float = 60) -> T:
    """Calls `read` until `done` is true of its result, and returns that result."""
    start = time.monotonic()
    while True:
        value = await read()
        if done(value):
            return value
        waited = time.monotonic() - start
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s; last value: {str(value)[:_SHOWN]}")
        await asyncio.sleep(_pause(waited))


def wait_until(done: Callable[[], object], *, seconds: float = 60) -> None:
    """The same without an event loop."""
    start = time.monotonic()
    while not done():
        waited = time.monotonic() - start
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(_pause(waited))


def _pause(waited: float) -> float:
    return min(max(waited * _SHARE, _SHORTEST), _LONGEST)
