"""The plots of costs by the number of pods are drawn from the figures beside them."""

from types import ModuleType

import pytest

from benchmarks import node_scaling
from benchmarks.operator import scaling as operator_scaling


@pytest.mark.parametrize("benchmark", [operator_scaling, node_scaling])
def test_the_plot_is_drawn_from_the_figures(benchmark: ModuleType) -> None:
    assert benchmark.PLOT.read_text() == benchmark.plot(benchmark.read_figures())


@pytest.mark.parametrize(("benchmark", "contenders"), [(operator_scaling, 2), (node_scaling, 1)])
def test_every_size_was_measured_for_every_contender(benchmark: ModuleType, contenders: int) -> None:
    measured = {(point.contender, point.pods) for point in benchmark.read_figures()}
    names, sizes = {name for name, _ in measured}, {pods for _, pods in measured}
    assert measured == {(name, pods) for name in names for pods in sizes}
    assert len(names) == contenders
    assert len(sizes) > 1
