"""The runtime of every controller: reflectors fill stores and enqueue keys, workers reconcile one key at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.workqueue import QueueShutDown, WorkQueue

K = TypeVar("K", bound=Hashable)

Reconcile = Callable[[K], Awaitable[Outcome | None]]
"""Brings the object that the key names closer to its desired state. It may be called at any time and any number of
times. None means Done; an ApiError or Unreachable means Retry."""

DRAIN_SECONDS = 4.0
"""How long `stop` waits for reconciliations in progress."""

_DONE = Done()


class Controller(Generic[K]):
    """Runs `workers` concurrent reconciliations, never two of the same key.

    Workers start after all reflectors have listed their resource once and `before_work`, for example leader election,
    has returned. `on_reconciled` is called with the key, the outcome and the duration in seconds; `on_error` with an
    exception that `reconcile` was not expected to raise. `retry_log_level` is the level of messages about retries.

    `synced` is set once all reflectors have listed.
    """

    def __init__(
        self,
        reconcile: Reconcile[K],
        *,
        log: logging.Logger,
        reflectors: Sequence[Reflector[Any]] = (),
        queue: WorkQueue[K] | None = None,
        workers: int = 4,
        before_work: Callable[[], Awaitable[object]] | None = None,
        on_reconciled: Callable[[K, Outcome, float], None] | None = None,
        on_error: Callable[[K, Exception], None] | None = None,
        retry_log_level: int = logging.DEBUG,
    ) -> None:
        self.queue: WorkQueue[K] = WorkQueue() if queue is None else queue
        self.reflectors = reflectors
        self.synced = asyncio.Event()
        self._reconcile = reconcile
        self._log = log
        self._workers = workers
        self._before_work = before_work
        self._on_reconciled = on_reconciled
        self._on_error = on_error
        self._retry_log_level = retry_log_level
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ends `run` once the reconciliations in progress are done, or after `DRAIN_SECONDS`."""
        self._stopping.set()

    async def run(self) -> None:
        """Runs until `stop` is called or it is cancelled. Errors of the API server are retried, never raised."""
        try:
            async with asyncio.TaskGroup() as group:
                watching = [group.create_task(reflector.run()) for reflector in self.reflectors]
                starting = group.create_task(self._start())
                stopping = group.create_task(self._stopping.wait())
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    await self._work_until_stopped()
                for task in (starting, *watching):
                    task.cancel()
        finally:
            self.queue.shut_down()

    async def relist(self) -> None:
        """Returns when the stores contain all changes from before this call."""
        await asyncio.gather(*(reflector.relist() for reflector in self.reflectors))

    async def _start(self) -> None:
        for reflector in self.reflectors:
            await reflector.wait_for_sync()
        self.synced.set()
        if self._before_work is not None:
            await self._before_work()

    async def _work_until_stopped(self) -> None:
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work()) for _ in range(self._workers)]
            await self._stopping.wait()
            self.queue.shut_down()
            _, late = await asyncio.wait(workers, timeout=DRAIN_SECONDS)
            for worker in late:
                worker.cancel()

    async def _work(self) -> None:
        queue, clock = self.queue, asyncio.get_running_loop().time
        while True:
            try:
                key = await queue.get()
            except QueueShutDown:
                return
            # Each reconciliation decides when the next one is due. Otherwise the deadline of a deleted object might
            # stay in memory for months.
            queue.cancel(key)
            began = clock()
            try:
                try:
                    outcome = await self._reconcile(key) or _DONE
                except (ApiError, Unreachable) as error:
                    outcome = Retry.after(error, str(error))
                except Exception as error:
                    outcome = self._unexpected(key, error)
                if self._on_reconciled is not None:
                    self._on_reconciled(key, outcome, clock() - began)
                self._settle(key, outcome)
            finally:
                queue.done(key)

    def _unexpected(self, key: K, error: Exception) -> Retry:
        """An error in the handling of one object must not stop the worker."""
        self._log.exception("%s: unexpected error", key)
        if self._on_error is not None:
            self._on_error(key, error)
        return Retry(f"unexpected error: {error}")

    def _settle(self, key: K, outcome: Outcome) -> None:
        match outcome:
            case Retry(reason, seconds):
                pause = self.queue.retry(key, at_least=seconds)
                self._log.log(self._retry_log_level, "%s: %s; trying again in %.3g s", key, reason, pause)
                return
            case RequeueAfter(0):
                self.queue.add_coalesced(key)  # together with the watch events of our own writes
            case RequeueAfter(seconds):
                self.queue.add_after(key, seconds)
            case Terminal(reason):
                self._log.warning("%s: giving up: %s", key, reason)
        self.queue.forget(key)
