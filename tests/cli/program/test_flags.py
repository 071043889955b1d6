"""A flag that does not exist may be a misspelt one, or an argument of the program."""

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--worker", "2"], "did you mean --workers? (an argument of the program comes after --: {} -- --worker 2)"),
        (["--nprocs=2"], "did you mean --nproc? (an argument of the program comes after --: {} -- --nprocs=2)"),
        (["--lr", "0.1"], "if it is an argument of the program, write {} -- --lr 0.1"),
    ],
)
def test_the_nearest_flag_comes_before_the_arguments_of_the_program(words: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["run", "ddp.py", *words], prog_name="trainwright")
    assert result.exit_code == 2
    name = words[0].partition("=")[0]
    assert f"no such option {name}: {message.format('trainwright run ddp.py')}\n" in result.output
