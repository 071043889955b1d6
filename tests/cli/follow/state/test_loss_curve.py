"""The loss over time in one line."""

import math

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.follow.state.loss_curve import LossCurve, sparkline


def test_a_falling_loss_falls() -> None:
    assert sparkline([(float(at), 8.0 - at) for at in range(8)]) == "█▇▆▅▄▃▂▁"


def test_parts_of_the_time_are_averaged() -> None:
    assert sparkline([(at / 10, float(at // 10)) for at in range(40)], width=4) == ""
    assert sparkline([(at / 10, float(at // 5)) for at in range(40)], width=4) == "▁▃▆█"


def test_few_readings_are_no_curve() -> None:
    assert sparkline([(1.0, 1.0), (2.0, 2.0)]) == ""


def test_readings_of_one_moment_are_drawn_in_their_order() -> None:
    assert sparkline([(1.0, float(value)) for value in range(8)]) == "▁▂▃▄▅▆▇█"


def test_a_long_run_needs_little_memory() -> None:
    curve = LossCurve()
    for number in range(100_000):
        curve.add(float(number), 1 / (1 + number))
    curve.add(1e6, math.nan)
    assert len(curve.points) <= 2048
    assert curve.points[0] == (0.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(-1e300, 1e300)), max_size=100))
def test_any_readings_fit_the_width(points: list[tuple[float, float]]) -> None:
    assert len(sparkline(sorted(points), width=30)) <= 30
