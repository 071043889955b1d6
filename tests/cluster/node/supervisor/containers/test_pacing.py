"""Output of programs that print many lines is read in batches; that of others at once."""

from trainwright.cluster.node.supervisor.containers.pacing import BATCH_SECONDS, OutputPacer


def pacer_after(*, rate: int, seconds: float, size: int = 80) -> OutputPacer:
    """A pacer that has seen `rate` lines per second, each in a read of its own."""
    pacer = OutputPacer()
    for number in range(int(rate * seconds)):
        pacer.count(1, size, 100.0 + number / rate)
    return pacer


def test_a_program_that_prints_now_and_then_is_read_at_once() -> None:
    assert pacer_after(rate=10, seconds=5).pause(105.0) == 0.0


def test_a_program_that_prints_many_lines_is_read_in_batches() -> None:
    assert pacer_after(rate=100, seconds=0.5).pause(100.5) == 0.0
    assert pacer_after(rate=100, seconds=3).pause(103.0) == BATCH_SECONDS


def test_it_stays_so_while_batches_arrive() -> None:
    pacer = pacer_after(rate=100, seconds=2)
    for number in range(60):
        pacer.count(5, 400, 102.0 + number * BATCH_SECONDS)
    assert pacer.pause(105.0) == BATCH_SECONDS


def test_after_a_silence_the_first_line_is_read_at_once() -> None:
    pacer = pacer_after(rate=100, seconds=3)
    assert pacer.pause(110.0) == 0.0
    pacer.count(1, 80, 110.0)
    assert pacer.pause(110.0) == 0.0


def test_a_program_that_fills_its_pipe_is_never_slowed_down() -> None:
    assert pacer_after(rate=100, seconds=3, size=64 * 1024).pause(103.0) == 0.0
