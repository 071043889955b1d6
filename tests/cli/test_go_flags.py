"""Go's spellings of flags, as Deployments of Go operators use them."""

import click
import pytest
from click.testing import CliRunner

from trainwright.cli.go_flags import GoFlags, switch


@click.command(cls=GoFlags)
@switch("--leader-elect", default=False, help="")
@switch("--zap-devel", default=None, help="")
@click.option("--threads", type=int, default=1)
@click.option("-v", "--verbose", is_flag=True)
def program(leader_elect: bool, zap_devel: bool | None, threads: int, verbose: bool) -> None:
    click.echo(f"{leader_elect} {zap_devel} {threads} {verbose}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "False None 1 False"),
        (("--leader-elect",), "True None 1 False"),
        (("-leader-elect",), "True None 1 False"),
        (("--leader-elect=true", "--zap-devel=false"), "True False 1 False"),
        (("-leader-elect=false", "-zap-devel"), "False True 1 False"),
        (("--leader-elect", "--threads", "3"), "True None 3 False"),
        (("-threads=4", "-leader-elect", "-v"), "True None 4 True"),
        (("-threads", "5"), "False None 5 False"),
    ],
)
def test_flags_are_read_as_go_reads_them(words: tuple[str, ...], said: str) -> None:
    answer = CliRunner().invoke(program, list(words))
    assert answer.output.strip() == said


@pytest.mark.parametrize("words", [("--leader-elect=maybe",), ("-leader-election",), ("--leader-elect", "no?")])
def test_what_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    assert CliRunner().invoke(program, list(words)).exit_code == 2
