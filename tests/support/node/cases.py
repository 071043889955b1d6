"""Runs the cases of one node at the same time, in an event loop of their own.

pytest asks for their results one after the other. A case is a coroutine function whose only fixture is `node`; further
arguments come from `pytest.mark.parametrize`.
"""

import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tests.support.node.namespace import NodeNamespace, RunningNode

STOP_SECONDS = 60.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Case:
    name: str
    """The id that pytest gives it."""
    function: Callable[..., Any]
    arguments: dict[str, Any]


class CaseRunner:
    """While the block runs, a thread runs the cluster and `parallel` cases at a time, in the order of `cases`.

    pytest asks in the same order, so a case that it waits for has started. The thread ends with the last case: tests
    that follow may use Hypothesis, which does not like that another thread uses `random`.
    """

    def __init__(
        self, cluster: AbstractAsyncContextManager[RunningNode], cases: Sequence[Case], *, parallel: int
    ) -> None:
        self._cluster = cluster
        self._cases = cases
        self._parallel = parallel
        self._results: dict[str, Future[None]] = {case.name: Future() for case in cases}
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="cases")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._ended.done():
            self._ended.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # the thread has ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS)
        self._ended.result(0)

    def result(self, name: str) -> None:
        """Waits for the case and raises what it raised."""
        try:
            self._results[name].result()
        finally:
            if all(result.done() for result in self._results.values()):
                self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._run_all())
        except BaseException as error:
            self._fail(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)
        finally:
            self._started.set()

    def _fail(self, error: BaseException) -> None:
        for result in self._results.values():
            if not result.done():
                result.set_exception(error)

    async def _run_all(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        slots = asyncio.Semaphore(self._parallel)
        async with self._cluster as running:
            self._started.set()
            tasks = [asyncio.create_task(self._run_case(case, running, slots)) for case in self._cases]
            ended: asyncio.Future[Any] = asyncio.gather(*tasks, return_exceptions=True)
            stopped: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in (stopped, *tasks):  # of cases that pytest no longer asks for
                task.cancel()
            await asyncio.gather(ended, stopped, return_exceptions=True)

    async def _run_case(self, case: Case, running: RunningNode, slots: asyncio.Semaphore) -> None:
        async with slots:
            try:
                await _run_in_namespace(case, running)
            except BaseException as error:
                self._results[case.name].set_exception(error)
                raise
            self._results[case.name].set_result(None)


async def _run_in_namespace(case: Case, running: RunningNode) -> None:
    words = re.sub(r"[^a-z0-9]+", "-", case.name.rpartition("::test_")[2].lower())
    node = NodeNamespace(running, f"{words[:40]}-{next(_numbers)}".lstrip("-"))
    await node.set_up()
    try:
        await case.function(node=node, **case.arguments)
    finally:
        await node.tear_down()
