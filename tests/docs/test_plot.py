"""The plot of the operator's cost is drawn from the figures beside it."""

from benchmarks.operator_scaling import PLOT, draw, read_figures


def test_the_plot_is_drawn_from_the_figures() -> None:
    assert PLOT.read_text() == draw(read_figures())


def test_every_size_was_measured_for_every_contender() -> None:
    measured = {(point.contender, point.pods) for point in read_figures()}
    contenders, sizes = {contender for contender, _ in measured}, {pods for _, pods in measured}
    assert measured == {(contender, pods) for contender in contenders for pods in sizes}
    assert len(contenders) == 2
    assert len(sizes) > 1
