"""Log records on a terminal and elsewhere: lines once, progress bars as one live line per rank."""

import io

from tests.support.objects.followed_jobs import run_of
from tests.support.objects.jobs import JOB_UID, JobBuilder
from trainwright.cli.follow.logs.log_printer import LogPrinter
from trainwright.cli.follow.logs.log_source import LogBatch, LogRecord
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.output.console import Console
from trainwright.objects.kinds.container_runs import ContainerRun

MASTER, WORKER = run_of("master-0"), run_of("worker-0")


class Printed:
    """A printer and what it has printed."""

    def __init__(self, *, tty: bool = False, tail: int | None = None) -> None:
        self.state = JobState(JobBuilder().master().workers(2).job(), JOB_UID)
        self._stream = io.StringIO()
        self.printer = LogPrinter([self.state], Console(self._stream, tty=tty, colours=False), tail=tail)

    def add(
        self, *records: tuple[ContainerRun, str], at: float = 0.0, ended: tuple[ContainerRun, ...] = ()
    ) -> list[str]:
        """New lines after these records; those that end with a line end are whole lines."""
        before = len(self._stream.getvalue())
        batch = [
            LogRecord(at, run, "stderr", text.removesuffix("\n"), not text.endswith("\n")) for run, text in records
        ]
        self.printer.print(LogBatch(batch, list(ended)), at)
        return self._stream.getvalue()[before:].splitlines()


def test_lines_have_the_label_of_their_rank() -> None:
    assert Printed().add((MASTER, "one\n"), (WORKER, "two\n")) == ["[master-0] one", "[worker-0] two"]


def test_lines_of_other_containers_name_them() -> None:
    init = run_of("worker-0", container="init-pytorch")
    assert Printed().add((init, "waiting\n")) == ["[worker-0] (init-pytorch) waiting"]


def test_on_a_terminal_every_rank_has_one_live_line() -> None:
    printed = Printed(tty=True)
    for percent in (10, 20, 30):
        assert printed.add((MASTER, f"\r {percent}%|#|"), (WORKER, f"\r {percent + 1}%|#|")) == []
        assert printed.printer.live_lines(5) == [f"[master-0]  {percent}%|#|", f"[worker-0]  {percent + 1}%|#|"]
    assert printed.add((MASTER, "\r100%|##|"), (MASTER, "\n")) == ["[master-0] 100%|##|"]
    assert printed.printer.live_lines(5) == ["[worker-0]  31%|#|"]


def test_many_bars_leave_room_for_the_log() -> None:
    printed = Printed(tty=True)
    printed.add(*((run_of(f"worker-{index}"), "\r 10%|#|") for index in range(20)))
    lines = printed.printer.live_lines(4)
    assert len(lines) == 4
    assert lines[-1] == "… and 17 more"


def test_without_a_terminal_a_bar_is_printed_now_and_then_and_when_it_is_complete() -> None:
    printed = Printed()
    lines = [printed.add((MASTER, f"\r {second:2}%|#|"), at=100.0 + second) for second in range(25)]
    assert [line for one in lines for line in one] == ["[master-0]  10%|#|", "[master-0]  20%|#|"]
    assert printed.add((MASTER, "\r100%|##|\n"), at=126.0) == ["[master-0] 100%|##|"]


def test_the_beginning_of_a_line_is_not_printed_twice() -> None:
    printed = Printed()
    assert printed.add((MASTER, "Loading ... "), at=100.0) == []
    assert printed.add(at=130.0) == []
    assert printed.add((MASTER, "done\n"), at=131.0) == ["[master-0] Loading ... done"]


def test_at_the_end_of_a_run_its_unfinished_line_is_printed() -> None:
    printed = Printed(tty=True)
    printed.add((MASTER, "\r 10%|#|"))
    assert printed.add(ended=(MASTER,))[-1:] == ["[master-0]  10%|#|"]
    assert printed.printer.live_lines(5) == []


def test_the_unfinished_line_of_a_run_comes_before_the_next_run() -> None:
    again = run_of("master-0", number=1)
    records = ((MASTER, "one\n"), (MASTER, "unfinished"), (again, "two\n"))
    assert Printed().add(*records, ended=(MASTER,)) == ["[master-0] one", "[master-0] unfinished", "[master-0] two"]


def test_the_tail_limits_what_exists_at_first() -> None:
    printed = Printed(tail=2)
    lines = [(MASTER, f"{number}\n") for number in range(5)]
    assert printed.add((WORKER, "w\n"), *lines) == ["[worker-0] w", "[master-0] 3", "[master-0] 4"]
    assert len(printed.add(*lines)) == 5


def test_progress_is_read_from_a_bar_while_it_runs() -> None:
    printed = Printed(tty=True)
    printed.add((MASTER, "\rEpoch 1:  50%|#  | 30/60 [00:03<00:03, 9.9it/s, loss=0.5]"), at=10.0)
    assert (printed.state.progress.step, printed.state.progress.metrics) == (30, {"loss": 0.5})
