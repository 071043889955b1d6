"""The frame of every controller: watches that fill stores, a queue of keys, workers that take one key at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.workqueue import WorkQueue

Reconcile = Callable[[str], Awaitable[None]]
"""Brings what the key names closer to what it should be. It may be called at any time, any number of times."""


class NotYet(Exception):  # noqa: N818 - nothing is wrong
    """The key cannot be finished now; it is taken up again after a pause that grows."""


async def run_controller(
    name: str, *, watches: Sequence[Reflector[Any]], queue: WorkQueue, reconcile: Reconcile, workers: int = 4
) -> None:
    """Runs until it is cancelled. Nothing is decided before all watches have seen the whole present state."""
    async with asyncio.TaskGroup() as tasks:
        for watch in watches:
            tasks.create_task(watch.run())
        for watch in watches:
            await watch.synced()
        for _ in range(workers):
            tasks.create_task(work(name, queue, reconcile))


async def work(name: str, queue: WorkQueue, reconcile: Reconcile) -> None:
    """One worker, for ever."""
    log = logging.getLogger(f"trainwright.cluster.{name}")
    while True:
        key = await queue.get()
        try:
            await reconcile(key)
        except (ApiError, Unreachable, NotYet) as error:
            # Somebody else was faster, or something is still on its way: the next try reads the state anew.
            log.debug("%s: %s; trying again", key, error)
            queue.retry(key)
        except Exception:
            # One object that we cannot handle must not stop the others.
            log.exception("%s: failed; trying again", key)
            queue.retry(key)
        else:
            queue.forget(key)
        finally:
            queue.done(key)
