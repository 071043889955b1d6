"""The status line shows what is known, and drops its least important parts on narrow terminals."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.objects.followed_jobs import run_of
from tests.support.objects.jobs import JOB_UID, NOW, JobBuilder, PodBuilder
from trainwright.cli.follow.state.job_state import JobState
from trainwright.cli.follow.texts.status_line import Status, bar, render_status, status_of
from trainwright.cli.output.console import cells
from trainwright.insight.log_progress import Progress

FULL = Progress(
    epoch=3, epochs=8, step=720, total=1500, metrics={"loss": 0.1262, "accuracy": 0.9562, "lr": 0.1}, speed=412.4
)


METRICS = "accuracy 0.9562  loss 0.1262"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (115, f"━━━━━━━━━╸                       31%  epoch 3/8  step 720/1500  {METRICS}  412/s  20s left  72s"),
        (79, f"━━━━━╸              31%  epoch 3/8  {METRICS}  20s left  72s"),
        (50, "━━━          31%  epoch 3/8  loss 0.1262  20s left"),
        (30, "━━━━╸            31%  20s left"),
        (10, "━━╸        31%"),
    ],
)
def test_a_narrow_terminal_shows_the_most_important_parts(width: int, line: str) -> None:
    assert render_status(Status(FULL, elapsed=72.0), width=width) == line


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress(), "⠋ running  5s"),
        (Progress(epoch=3), "⠋ running  epoch 3  5s"),
        (Progress(step=7), "⠋ running  step 7  5s"),
        (Progress(metrics={"loss": 0.00001}, speed=0.25), "⠋ running  loss 1e-05  0.2/s  5s"),
        (
            Progress(metrics={"rmse": 3.0, "val_loss": 0.5, "loss": 0.25, "val_accuracy": 0.75}),
            "⠋ running  loss 0.2500  val_accuracy 0.7500  val_loss 0.5000  rmse 3.0000  5s",
        ),
        (Progress(metrics={"loss": float("nan")}, speed=25_000.0), "⠋ running  loss nan  25k/s  5s"),
    ],
)
def test_without_a_known_end_a_spinner_turns(progress: Progress, line: str) -> None:
    assert render_status(Status(progress, 5.0, "running"), width=80) == line
    assert render_status(Status(progress, 5.0, "running"), width=80, frame=1) != line


def test_after_the_last_step_no_time_is_left_to_be_shown() -> None:
    progress = Progress(epoch=3, epochs=3, step=30, total=30, speed=11.0)
    assert render_status(Status(progress, 23.0), width=60).endswith("100%  epoch 3/3  step 30/30  11/s  23s")


def test_the_bar_of_an_epoch_says_so_by_the_number_that_the_program_prints() -> None:
    progress = Progress(epoch=3, step=45, total=100, metrics={"loss": 0.5})
    assert render_status(Status(progress, 5.0), width=79).endswith(" 45% of epoch 3  step 45/100  loss 0.5000  5s")
    from_zero = replace(progress, counts_from_zero=True)
    assert " 45% of epoch 2  step" in render_status(Status(from_zero, 5.0), width=79)
    whole = replace(progress, spans_epochs=True)
    assert " 45%  epoch 3  step 45/100" in render_status(Status(whole, 5.0), width=79)


@pytest.mark.parametrize(
    ("fraction", "drawn"),
    [
        (0.0, "        "),
        (0.5, "━━━━    "),
        (0.56, "━━━━╸   "),
        (1.0, "━━━━━━━━"),
        (1.5, "━━━━━━━━"),
        (-1.0, "        "),
    ],
)
def test_the_bar_is_as_long_as_the_finished_part(fraction: float, drawn: str) -> None:
    assert bar(fraction, 8) == drawn


def test_a_job_that_starts_says_so_with_one_time() -> None:
    state = JobState(JobBuilder().master().workers(2).job(), JOB_UID)
    start = NOW.timestamp()
    assert render_status(status_of(state, start + 1), width=79) == "⠋ starting: waiting for pods  1s"
    state.update_pod(PodBuilder("Master", 0).running().raw())
    expected = "⠋ starting: 1 of 3 ranks running, no output yet  3s"
    assert render_status(status_of(state, start + 3), width=79) == expected
    state.add_line(run_of("master-0"), "hello", start + 4)
    assert status_of(state, start + 5).activity == "running"
    assert status_of(state, start + 14).activity == "running: no output for 10s"


def test_a_program_that_stops_printing_is_shown_beside_its_progress() -> None:
    line = render_status(Status(FULL, elapsed=72.0, silence=15.0), width=120)
    assert line.endswith("412/s  20s left  no output for 15s  72s")


@pytest.mark.parametrize(("gap", "quiet", "known"), [(1, 14, True), (1, 15, False), (60, 170, True), (60, 180, False)])
def test_rate_and_time_left_go_when_progress_stops(gap: int, quiet: int, known: bool) -> None:
    state = JobState(JobBuilder().master().job(), JOB_UID)
    start = NOW.timestamp()
    state.update_pod(PodBuilder("Master", 0).running().raw())
    for step in (10, 20, 30):
        state.add_line(run_of("master-0"), f"step {step}/200 loss 0.5", start + gap * step / 10)
    line = render_status(status_of(state, start + 3 * gap + quiet), width=120)
    assert "step 30/200" in line
    assert ("/s" in line, " left" in line) == (known, known)


@given(
    st.builds(
        Progress,
        epoch=st.none() | st.integers(0, 10**12),
        epochs=st.none() | st.integers(0, 10**12),
        step=st.none() | st.integers(0, 10**12),
        total=st.none() | st.integers(0, 10**12),
        metrics=st.dictionaries(st.sampled_from(["loss", "accuracy", "lr", "损失"]), st.floats()),
        speed=st.none() | st.floats(min_value=1e-300, max_value=1e300),
    ),
    st.integers(20, 300),
)
@example(Progress(epoch=0, step=0, total=1), 20)
def test_any_progress_fits_any_terminal(progress: Progress, width: int) -> None:
    line = render_status(Status(progress, 5.0, "running"), width=width)
    assert cells(line) <= width
    assert "\n" not in line
