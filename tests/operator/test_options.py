"""Which kinds `--enable-scheme` switches on."""

from dataclasses import replace

import pytest

from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.operator.options import OperatorError, enabled_kinds

TWO = {"PyTorchJob": PYTORCH, "OtherJob": replace(PYTORCH, name="OtherJob")}


def test_all_kinds_are_enabled_unless_some_are_named() -> None:
    assert enabled_kinds(()) == KINDS
    assert list(enabled_kinds((), TWO)) == ["PyTorchJob", "OtherJob"]


@pytest.mark.parametrize("name", ["PyTorchJob", "pytorchjob", "PYTORCHJOB"])
def test_a_kind_is_named_in_any_letter_case_and_any_number_of_times(name: str) -> None:
    assert enabled_kinds((name, "PyTorchJob"), TWO) == {"PyTorchJob": PYTORCH}


def test_an_unknown_kind_is_an_error_that_names_the_valid_ones() -> None:
    with pytest.raises(OperatorError, match="--enable-scheme: scheme banana is not supported yet") as error:
        enabled_kinds(("pytorchjob", "banana"), TWO)
    assert "OtherJob, PyTorchJob" in str(error.value)
