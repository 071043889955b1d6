import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from trainwright.cluster.embedded_cluster import ComponentManager

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Function:
    """A component that awaits a function."""

    def __init__(self, function: Callable[[], Awaitable[None]]) -> None:
        self._function = function

    async def run(self) -> None:
        await self._function()


async def test_a_crashed_component_is_restarted_and_shown_until_it_is_healthy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    starts: list[float] = []
    loop = asyncio.get_running_loop()

    async def fragile() -> None:
        starts.append(loop.time())
        if len(starts) <= 2:
            raise OSError("disk on fire")
        await asyncio.Event().wait()

    components = ComponentManager()
    components.start("fragile", lambda: Function(fragile))
    await asyncio.sleep(5)
    assert len(starts) == 3
    assert components.failures == {"fragile": "OSError: disk on fire"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR]
    await asyncio.sleep(10)
    assert components.failures == {}
    await components.stop()


async def test_back_off_grows_while_a_component_keeps_crashing() -> None:
    starts: list[float] = []
    loop = asyncio.get_running_loop()

    async def hopeless() -> None:
        starts.append(loop.time())
        raise RuntimeError

    components = ComponentManager()
    components.start("hopeless", lambda: Function(hopeless))
    await asyncio.sleep(600)
    await components.stop()
    assert 20 < len(starts) < 60  # half to all of 30 seconds apart in the end
    assert max(after - before for before, after in itertools.pairwise(starts)) <= 30


async def test_a_component_that_returns_counts_as_crashed() -> None:
    async def brief() -> None:
        return

    components = ComponentManager()
    components.start("brief", lambda: Function(brief))
    await asyncio.sleep(1)
    assert components.failures == {"brief": "it ended unexpectedly"}
    await components.stop()


async def test_components_stop_in_the_reverse_order_of_their_start() -> None:
    stopped: list[str] = []

    async def component(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            stopped.append(name)

    components = ComponentManager()
    for name in ("first", "second", "third"):
        components.start(name, partial(Function, partial(component, name)))
    await asyncio.sleep(1)
    await components.stop()
    assert stopped == ["third", "second", "first"]


async def test_the_failed_task_of_a_group_is_named() -> None:
    async def disk() -> None:
        raise OSError("disk on fire")

    async def grouped() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())
            tasks.create_task(disk())

    components = ComponentManager()
    components.start("grouped", lambda: Function(grouped))
    await asyncio.sleep(1)
    assert components.failures == {"grouped": "OSError: disk on fire"}
    await components.stop()
