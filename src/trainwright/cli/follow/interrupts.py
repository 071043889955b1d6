"""Ctrl-C while jobs are followed: the first one explains, the second one asks.

The terminal sends SIGINT. The event loop handles it like other events, so that no exception interrupts a request or a
line that is being printed. Where no user can answer, Ctrl-C leaves the jobs running at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from enum import Enum

from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.output.console import Console
from trainwright.cli.targets import Target


class Choice(Enum):
    GO_ON = "go on following"
    LEAVE = "leave the jobs running"
    STOP = "stop the jobs"


_ANSWERS = {"s": Choice.STOP, "stop": Choice.STOP, "l": Choice.LEAVE, "leave": Choice.LEAVE, "": Choice.GO_ON}


def explanation(states: Sequence[JobState], *, down: bool = False, up: str = "") -> str:
    """What Ctrl-C does to unfinished jobs. `down`: their cluster is not running, and the command `up` starts it."""
    many = len(states) > 1
    job, them = ("jobs", "them") if many else ("job", "it")
    # While the API server is down, only the processes show whether pods have ended.
    running = any(state.process_ids() if down else state.running_since() for state in states)
    if down:
        pods = "keep running" if running else "have ended"
        return f"The cluster is not running; the pods of the {job} {pods}. To go on: `{up}`; to leave: Ctrl-C again."
    verb = ("keep" if many else "keeps") + " running" if running else "stay" if many else "stays"
    return f"The {job} {verb}. Ctrl-C again to choose: stop {them}, or leave {them} running."


class Interrupts:
    """`asks`: a user can answer. While the cluster is not running, nothing can be stopped.

    Use it as a context manager inside the event loop.
    """

    def __init__(self, console: Console, target: Target, *, asks: bool) -> None:
        self._console = console
        self._target = target
        self._asks = asks
        self._explained = False
        self._pressed = asyncio.Event()

    @contextlib.contextmanager
    def handled(self) -> Iterator["Interrupts"]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._pressed.set)
        try:
            yield self
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def wait(self, seconds: float, states: Sequence[JobState]) -> Choice:
        """Waits for that time or for Ctrl-C, and then for the user's decision."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pressed.wait()
        if not self._pressed.is_set():
            return Choice.GO_ON
        self._pressed.clear()
        if not self._asks:
            return Choice.LEAVE
        unfinished = [state for state in states if not state.outcome]
        if not unfinished:
            return Choice.LEAVE  # they have finished: only the ends of their logs are missing
        is_down = self._target.is_down
        if not self._explained:
            self._explained = True
            self._console.print(explanation(unfinished, down=is_down, up=self._target.up_command))
            return Choice.GO_ON
        if is_down:
            return Choice.LEAVE
        return await self._ask(", ".join(state.name for state in unfinished))

    async def _ask(self, names: str) -> Choice:
        question = f"Stop {names}? [s]top, files stay  [l]eave running  [Enter] go on following: "
        while True:
            self._console.prompt(question)
            answer = await self._answer()
            if answer is None:
                self._console.print("")
                return Choice.LEAVE
            if choice := _ANSWERS.get(answer.strip().lower()):
                return choice
            question = "Answer s, l or Enter: "

    async def _answer(self) -> str | None:
        """The line that the user enters; None after another Ctrl-C or at the end of the input."""
        loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
        entered: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            loop.remove_reader(descriptor)
            if not entered.done():
                entered.set_result(os.read(descriptor, 4096).decode(errors="replace"))

        loop.add_reader(descriptor, read)
        pressed = asyncio.ensure_future(self._pressed.wait())
        try:
            await asyncio.wait([entered, pressed], return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
            if not entered.done():
                self._pressed.clear()
                return None
            return entered.result() or None
        finally:
            loop.remove_reader(descriptor)
            pressed.cancel()
