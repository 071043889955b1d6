"""Prints log records behind the labels of their ranks; progress bars as live lines, one per rank at most."""

from collections import deque
from collections.abc import Sequence

from trainwright.cli.follow.logs.container_output import ContainerOutput
from trainwright.cli.follow.logs.log_source import LogBatch
from trainwright.cli.follow.state.job_state import JobState, Run
from trainwright.cli.output.console import Console

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
        self._outputs: dict[Run, ContainerOutput] = {}
        self._bars: dict[Run, _Bar] = {}
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
        for run in sorted(self._bars, key=lambda run: self._label(run)[1]):
            if (text := self._bars[run].text) and self._is_shown(run):
                label, number = self._label(run)
                shown[run.job_uid, run.rank] = f"{self._console.label(label, number)} {text}"
        lines = list(shown.values())
        if len(lines) <= limit:
            return lines
        return [*lines[: limit - 1], f"… and {len(lines) - limit + 1} more"]

    def _assemble(self, batch: LogBatch) -> list[tuple[Run, str]]:
        """The lines that are finished now. At the end of a run its unfinished lines are finished too."""
        lines: list[tuple[Run, str]] = []
        touched: dict[Run, float] = {}
        outputs = self._outputs
        last = {record.run: index for index, record in enumerate(batch.records)} if batch.ended else {}
        ends = {last[run]: run for run in batch.ended if run in last}
        for run in batch.ended:
            if run not in last:
                lines += self._end(run)
        for index, (at, run, stream, text, partial) in enumerate(batch.records):
            output = outputs.get(run)
            if output is None:
                output = outputs[run] = ContainerOutput()
            if partial or output.has_open_line:
                touched[run] = at
            line = output.add(stream, text, partial=partial)
            if line is not None:
                self._states[run.job_uid].add_line(run, line, at)
                lines.append((run, line))
            if index in ends:
                lines += self._end(run)
                touched.pop(run, None)
        for run, at in touched.items():
            self._touch(run, outputs[run], at)
        return lines

    def _end(self, run: Run) -> list[tuple[Run, str]]:
        self._bars.pop(run, None)
        output = self._outputs.pop(run, None)
        if output is None:
            return []
        state = self._states[run.job_uid]
        at = state.last_output(run.rank)
        lines = output.end()
        for line in lines:
            state.add_line(run, line, at)
        state.set_live(run, "", at)
        return [(run, line) for line in lines]

    def _touch(self, run: Run, output: ContainerOutput, at: float) -> None:
        live = output.live
        self._states[run.job_uid].set_live(run, live, at)
        bar = self._bars.setdefault(run, _Bar())
        bar.text, bar.rewritten = live, output.is_rewritten

    def _update_bars(self, now: float) -> None:
        for run, bar in list(self._bars.items()):
            if not bar.text:
                del self._bars[run]
            elif not self._console.tty and self._is_shown(run) and bar.is_due(now):
                self._print_line(run, bar.text)
                self.printed += 1

    def _print_line(self, run: Run, line: str) -> None:
        label, number = self._label(run)
        if run.container not in self._states[run.job_uid].main_containers:
            line = f"({run.container}) {line}"
        self._console.print_log(label, number, line)

    def _is_shown(self, run: Run) -> bool:
        return self._ranks is None or run.rank in self._ranks

    def _label(self, run: Run) -> tuple[str, int]:
        return self._labels.get((run.job_uid, run.rank), (f"[{run.rank}]", 0))


class _Bar:
    """The unfinished line of a run, and when it was printed."""

    def __init__(self) -> None:
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


def _tail(lines: list[tuple[Run, str]], limit: int) -> list[tuple[Run, str]]:
    """The last lines of each rank, in their order."""
    left: dict[tuple[str, str], int] = {}
    kept: deque[tuple[Run, str]] = deque()
    for run, line in reversed(lines):
        key = run.job_uid, run.rank
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
