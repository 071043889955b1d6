"""The runs of a job as its diagnosis needs them, from the records of the embedded node."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.recorded_runs import whole_lines
from trainwright.cluster.embedded import LogLine
from trainwright.insight.diagnosis import Line


def test_parts_of_a_line_are_joined_by_stream() -> None:
    pieces = [
        LogLine(1.0, "stdout", "epoch 1 ", True),
        LogLine(1.1, "stderr", "warning", False),
        LogLine(1.2, "stdout", "loss 0.5", False),
        LogLine(1.3, "stdout", "unfinished", True),
    ]
    assert list(whole_lines(pieces)) == [Line("warning", 1.1), Line("epoch 1 loss 0.5", 1.0), Line("unfinished", 1.3)]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(max_size=5), st.booleans())))
def test_no_text_is_lost_and_no_line_is_made_up(pieces: list[tuple[str, str, bool]]) -> None:
    lines = list(whole_lines(LogLine(0.0, stream, text, partial) for stream, text, partial in pieces))
    assert sorted("".join(line.text for line in lines)) == sorted("".join(text for _, text, _ in pieces))
    assert len(lines) >= sum(not partial for _, _, partial in pieces)
