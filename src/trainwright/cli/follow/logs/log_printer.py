"""Prints log records behind the labels of their ranks; progress bars as live lines, one per rank at most."""

from collections import deque
from collections.abc import Sequence

from trainwright.cli.follow.logs.container_output import ContainerOutput
from trainwright.cli.follow.logs.log_source import LogBatch
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.output.console import Console
from trainwright.objects.kinds.container_runs import ContainerRun, RunKey

_BAR_SECONDS = 10.0
"""Without a terminal, a progress bar is printed so often; and when it is complete."""


class LogPrinter:
    """`tail`: of the lines that exist at first, print only so many of each rank. `ranks`: print only those of these."""

    def __init__(
        self,
        states: Sequence[JobState],
        console: Console,
        *,
        tail: int | None = None,
        ranks: frozenset[str] | None = None,
    ) -> None:
        self._states = {state.uid: state for state in states}
        self._console = console
        self._tail = tail
        self._ranks = ranks
        self._labels = _labels(states)
        self._outputs: dict[RunKey, ContainerOutput] = {}
        self._bars: dict[RunKey, _Bar] = {}
        self.printed = 0
        """The number of lines so far."""

    def print(self, batch: LogBatch, now: float) -> None:
        lines = self._assemble(batch)
        if self._tail is not None and lines:
            lines, self._tail = _tail(lines, self._tail), None
        for run, line in lines:
            if self._is_shown(run):
                self._print_line(run, line)
        self.printed += len(lines)
        if self._bars:
            self._update_bars(now)

    def live_lines(self, limit: int) -> list[str]:
        """The unfinished lines, at most one per rank and `limit` in all, the first ranks first."""
        shown: dict[tuple[str, str], str] = {}
        for bar in sorted(self._bars.values(), key=lambda bar: self._label(bar.run)[1]):
            if bar.text and self._is_shown(bar.run):
                label, number = self._label(bar.run)
                shown[bar.run.owner_uid, bar.run.rank] = f"{self._console.label(label, number)} {bar.text}"
        lines = list(shown.values())
        if len(lines) <= limit:
            return lines
        return [*lines[: limit - 1], f"… and {len(lines) - limit + 1} more"]

    def _assemble(self, batch: LogBatch) -> list[tuple[ContainerRun, str]]:
        """The lines that are finished now. At the end of a run its unfinished lines are finished too."""
        lines: list[tuple[ContainerRun, str]] = []
        touched: dict[RunKey, tuple[ContainerRun, float]] = {}
        outputs = self._outputs
        last = {record.run.key: index for index, record in enumerate(batch.records)} if batch.ended else {}
        ends = {last[run.key] for run in batch.ended if run.key in last}
        for run in batch.ended:
            if run.key not in last:
                lines += self._end(run)
        for index, (at, run, stream, text, partial) in enumerate(batch.records):
            key = run.key
            output = outputs.get(key)
            if output is None:
                output = outputs[key] = ContainerOutput()
            if partial or output.has_open_line:
                touched[key] = run, at
            line = output.add(stream, text, partial=partial)
            if line is not None:
                self._states[run.owner_uid].add_line(run, line, at)
                lines.append((run, line))
            if index in ends:
                lines += self._end(run)
                touched.pop(key, None)
        for key, (run, at) in touched.items():
            self._touch(run, outputs[key], at)
        return lines

    def _end(self, run: ContainerRun) -> list[tuple[ContainerRun, str]]:
        self._bars.pop(run.key, None)
        output = self._outputs.pop(run.key, None)
        if output is None:
            return []
        state = self._states[run.owner_uid]
        at = state.last_output(run.rank)
        lines = output.end()
        for line in lines:
            state.add_line(run, line, at)
        state.set_live(run, "", at)
        return [(run, line) for line in lines]

    def _touch(self, run: ContainerRun, output: ContainerOutput, at: float) -> None:
        live = output.live
        self._states[run.owner_uid].set_live(run, live, at)
        bar = self._bars.setdefault(run.key, _Bar(run))
        bar.text, bar.rewritten = live, output.is_rewritten

    def _update_bars(self, now: float) -> None:
        for key, bar in list(self._bars.items()):
            if not bar.text:
                del self._bars[key]
            elif not self._console.tty and self._is_shown(bar.run) and bar.is_due(now):
                self._print_line(bar.run, bar.text)
                self.printed += 1

    def _print_line(self, run: ContainerRun, line: str) -> None:
        label, number = self._label(run)
        if run.container not in self._states[run.owner_uid].main_containers:
            line = f"({run.container}) {line}"
        self._console.print_log(label, number, line)

    def _is_shown(self, run: ContainerRun) -> bool:
        return self._ranks is None or run.rank in self._ranks

    def _label(self, run: ContainerRun) -> tuple[str, int]:
        return self._labels.get((run.owner_uid, run.rank), (f"[{run.rank}]", 0))


class _Bar:
    """The unfinished line of a run, and when it was printed."""

    def __init__(self, run: ContainerRun) -> None:
        self.run = run
        self.text = ""
        self.rewritten = False
        self._printed = ""
        self._at: float | None = None

    def is_due(self, now: float) -> bool:
        if not self.rewritten or self.text == self._printed:
            return False
        if self._at is None:
            self._at = now
        if now - self._at < _BAR_SECONDS:
            return False
        self._at, self._printed = now, self.text
        return True


def _tail(lines: list[tuple[ContainerRun, str]], limit: int) -> list[tuple[ContainerRun, str]]:
    """The last lines of each rank, in their order."""
    left: dict[tuple[str, str], int] = {}
    kept: deque[tuple[ContainerRun, str]] = deque()
    for run, line in reversed(lines):
        key = run.owner_uid, run.rank
        left[key] = left.get(key, limit) - 1
        if left[key] >= 0:
            kept.appendleft((run, line))
    return list(kept)


def _labels(states: Sequence[JobState]) -> dict[tuple[str, str], tuple[str, int]]:
    """The label before each rank's log lines, all of one width, and the number of its colour."""
    names = {
        (state.uid, label): f"[{state.name}/{label}]" if len(states) > 1 else f"[{label}]"
        for state in states
        for label in state.labels
    }
    width = max(map(len, names.values()), default=0)
    return {key: (name.ljust(width), number) for number, (key, name) in enumerate(names.items())}
