"""Records of a log become lines; what a program rewrites becomes one live line."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.follow.logs.container_output import ContainerOutput
from trainwright.cli.output.console import visible


def feed(output: ContainerOutput, *records: str, stream: str = "stderr") -> list[str]:
    """Partial records, except those that end with a line end."""
    lines = [output.add(stream, text.removesuffix("\n"), partial=not text.endswith("\n")) for text in records]
    return [visible(line) for line in lines if line is not None]


def test_every_state_of_a_bar_is_live_and_the_last_one_a_line() -> None:
    output = ContainerOutput()
    assert feed(output, "\r  0%|     | 0/10") == []
    assert (output.live, output.is_rewritten) == ("  0%|     | 0/10", True)
    assert feed(output, "\r 50%|##   | 5/10") == []
    assert output.live == " 50%|##   | 5/10"
    assert feed(output, "\r100%|#####| 10/10", "\n") == ["100%|#####| 10/10"]
    assert output.live == ""


def test_a_message_that_a_program_prints_above_its_bar_is_a_line() -> None:
    output = ContainerOutput()
    lines = feed(output, "\r 10%|#    |", "\r            \r", "{'loss': 0.5}\n", "\r 20%|##   |")
    assert lines == ["{'loss': 0.5}"]
    assert output.live == " 20%|##   |"


def test_the_beginning_of_a_line_is_live_but_not_a_bar() -> None:
    output = ContainerOutput()
    assert feed(output, "Loading ... ") == []
    assert (output.live, output.is_rewritten) == ("Loading ... ", False)
    assert feed(output, "done\n") == ["Loading ... done"]


def test_both_streams_have_lines_of_their_own() -> None:
    output = ContainerOutput()
    feed(output, "\r 10%|#    |")
    assert feed(output, "epoch 1\n", stream="stdout") == ["epoch 1"]
    assert output.live == " 10%|#    |"


def test_nested_bars_are_one_live_line() -> None:
    output = ContainerOutput()
    outer, inner = "\rEpochs:   0%|   | 0/2", "Steps:  50%|#  | 1/2\x1b[A"
    first = feed(output, outer, "\n", f"\r{inner}")
    rest = feed(output, *[outer, "\n", f"\r{inner}"] * 5, "\r          \r", "\rEpochs: 100%|###| 2/2", "\n")
    assert first == ["Epochs:   0%|   | 0/2"]  # it is not known yet that the program will return to this line
    assert rest == ["Epochs: 100%|###| 2/2"]


def test_the_bars_of_validation_that_lightning_draws_below_that_of_the_epoch_are_one_line() -> None:
    output = ContainerOutput()
    empty = "\rValidation: |          | 0/? [00:00<?, ?it/s]\x1b[A"
    lines = feed(output, f"{empty}\n", f"{empty}\n", "\rValidation DataLoader 0:  50%|##   | 1/2 [00:00<00:00]\x1b[A\n")
    assert lines == []
    assert feed(output, "\rValidation DataLoader 0: 100%|#####| 2/2 [00:00<00:00]\n") == [
        "Validation DataLoader 0: 100%|#####| 2/2 [00:00<00:00]"
    ]


def test_at_the_end_of_the_run_the_unfinished_line_is_shown() -> None:
    output = ContainerOutput()
    feed(output, "\r 10%|#    |", "\r 20%|##   |")
    assert [visible(line) for line in output.end()] == [" 20%|##   |"]
    assert output.live == ""
    assert output.end() == []


def test_a_bar_that_the_program_has_erased_is_not_shown_at_the_end() -> None:
    output = ContainerOutput()
    feed(output, "\rEvaluating: 100%|#####| 10/10", "\r                             \r")
    assert output.end() == []


def test_a_very_long_line_is_shown_in_pieces() -> None:
    output = ContainerOutput()
    assert sum(map(len, feed(output, *["x" * 16_384] * 40, "\n"))) == 40 * 16_384


@given(st.lists(st.text(alphabet="ab \t", max_size=8), max_size=20), st.data())
def test_lines_are_the_same_however_they_are_cut(lines: list[str], data: st.DataObject) -> None:
    text = "".join(f"{line}\n" for line in lines)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)))))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    records = [part for piece in pieces for part in piece.splitlines(keepends=True)]
    assert feed(ContainerOutput(), *records) == lines
