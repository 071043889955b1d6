"""Tables fit the terminal: the least important columns go first, the name never; wrapped texts lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.output.console import cells
from trainwright.cli.output.tables import Table, hanging, table_lines

HEAD = ["NAME", "KIND", "STATE", "AGE", "METRICS"]
ROWS = [
    ["pytorch-digits", "PyTorchJob", "Succeeded", "2m34s", "accuracy=0.9832 loss=0.0177"],
    ["x", "TFJob", "Running", "5s", ""],
]
DROP = ("AGE", "KIND")


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            None,
            [
                "NAME             KIND         STATE       AGE     METRICS",
                "pytorch-digits   PyTorchJob   Succeeded   2m34s   accuracy=0.9832 loss=0.0177",
                "x                TFJob        Running     5s",
            ],
        ),
        (
            66,
            [
                "NAME             KIND         STATE       METRICS",
                "pytorch-digits   PyTorchJob   Succeeded   accuracy=0.9832 loss=0.…",
                "x                TFJob        Running",
            ],
        ),
        (
            50,
            [
                "NAME             STATE       METRICS",
                "pytorch-digits   Succeeded   accuracy=0.9832 loss…",
                "x                Running",
            ],
        ),
    ],
)
def test_a_narrow_terminal_drops_columns_and_cuts_the_last_one(width: int | None, lines: list[str]) -> None:
    assert table_lines(HEAD, ROWS, width=width, drop=DROP) == lines


@given(st.integers(30, 200), st.lists(st.text(max_size=40), min_size=1, max_size=3))
def test_no_line_is_longer_than_the_terminal_and_every_name_is_whole(width: int, texts: list[str]) -> None:
    rows = [["a-name", "PyTorchJob", "Running", "5s", text] for text in texts]
    lines = table_lines(HEAD, rows, width=width, drop=DROP)
    assert all(cells(line) <= width for line in lines)
    assert all(line.startswith("a-name") for line in lines[1:])


def test_rows_that_are_printed_later_keep_their_columns() -> None:
    table = Table.fitted(HEAD, [ROWS[1]], width=32, drop=DROP, least={"STATE": 9})
    assert table.line(HEAD) == "NAME   STATE       METRICS"
    assert table.line(["x", "TFJob", "Succeeded", "6s", "loss=0.1"]) == "x      Succeeded   loss=0…"


MESSAGE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu, which the machine does not have"


def test_a_text_is_wrapped_in_its_column_or_below_the_others() -> None:
    head, rows = ["OBJECT", "MESSAGE"], [["pod/digits-master-0", MESSAGE]]
    assert table_lines(head, rows, width=60, wrap=True) == [
        "OBJECT                MESSAGE",
        "pod/digits-master-0   0/1 nodes are available: 1",
        "                      Insufficient nvidia.com/gpu, which the",
        "                      machine does not have",
    ]
    assert table_lines(head, rows, width=50, wrap=True) == [
        "OBJECT",
        "    MESSAGE",
        "pod/digits-master-0",
        "    0/1 nodes are available: 1 Insufficient",
        "    nvidia.com/gpu, which the machine does not",
        "    have",
    ]
    assert table_lines(head, rows, width=None, wrap=True)[1].endswith(MESSAGE)


def test_further_lines_hang_below_the_beginning_of_a_text() -> None:
    assert hanging(MESSAGE, indent=5, width=60).splitlines()[1] == "     which the machine does not have"
    assert hanging(MESSAGE, indent=5, width=None) == MESSAGE
