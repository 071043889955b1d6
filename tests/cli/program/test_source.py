"""Finding a program, its modules and its framework, without running it."""

from pathlib import Path

import pytest

from trainwright.cli.errors import CommandError
from trainwright.cli.program.source import find_file, find_module, guess_framework

FILES = {
    "train.py": "import model\nfrom data.images import load\ndef late():\n    import late\n",
    "model.py": "import torch\n",
    "late.py": "",
    "unused.py": "import jax\n",
    "data/__init__.py": "",
    "data/images.py": "from . import helpers\nfrom ..outside import x\nfrom .labels import *\n",
    "data/helpers.py": "import json, model\n",
    "data/labels.py": "",
    "data/unused.py": "",
    "package/train.py": "import package.shared\n",
    "package/shared.py": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(paths: dict[Path, bytes]) -> set[str]:
    return {str(path) for path in paths}


def test_the_sources_are_the_program_and_all_modules_beside_it_that_it_imports(project: Path) -> None:
    sources = find_file(str(project / "train.py")).sources()
    assert found(sources) == {
        "train.py", "model.py", "late.py", "data/__init__.py", "data/images.py", "data/helpers.py", "data/labels.py",
    }  # fmt: skip
    assert sources[Path("model.py")] == b"import torch\n"


def test_a_module_is_found_as_python_does(project: Path) -> None:
    program = find_module("package.train", project)
    assert program.file == project / "package" / "train.py"
    assert found(program.sources()) == {"package/train.py", "package/shared.py"}
    assert find_module("torchtune.cli", project).file is None
    with pytest.raises(CommandError, match=r"-m train-it: not the name of a module"):
        find_module("train-it", project)


def test_nothing_above_the_directory_is_a_source(project: Path) -> None:
    (project / "data" / "alone.py").write_text("from ... import model\nimport model\nfrom .. import model\n")
    assert found(find_file(str(project / "data" / "alone.py")).sources()) == {"alone.py"}


@pytest.mark.parametrize(
    ("text", "framework", "module"),
    [
        ("import torch.nn as nn", "pytorch", "torch"),
        ("from pytorch_lightning import Trainer", "pytorch", "pytorch_lightning"),
        ("import tensorflow as tf", "tensorflow", "tensorflow"),
        ("def main():\n    from jax import numpy", "jax", "jax"),
        ("import xgboost", "xgboost", "xgboost"),
        ("import paddle", "paddle", "paddle"),
        ("import xgboost, torch", "pytorch", "torch"),
        ("import torch\nfrom mpi4py import MPI", "mpi", "mpi4py"),
        ("import horovod.torch as hvd", "mpi", "horovod"),
        ("import torchx, json", "pytorch", None),
        ("print 'Python 2'", "pytorch", None),
        ("\x00", "pytorch", None),
    ],
)
def test_the_framework_is_guessed_from_the_imports(
    text: str, framework: str, module: str | None, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(text)
    guess = guess_framework(find_file(str(tmp_path / "train.py")))
    assert (guess.framework, guess.module) == (framework, module)


def test_lightning_starts_the_processes_of_a_node_itself(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nfrom lightning.pytorch import Trainer\n")
    guess = guess_framework(find_file(str(tmp_path / "train.py")))
    assert (guess.module, guess.starts_processes) == ("torch", True)


def test_the_framework_may_be_imported_by_a_module_of_the_program(project: Path) -> None:
    assert guess_framework(find_file(str(project / "train.py"))).module == "torch"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trian.py", r"trian\.py does not exist: did you mean .*train\.py\?"),
        ("elsewhere/train.py", r"elsewhere/train\.py does not exist \(looked in .*elsewhere\)"),
        ("directory.py", r"directory\.py is a directory: name the program in it"),
    ],
)
def test_a_program_that_cannot_be_read_is_one_clear_error(project: Path, name: str, message: str) -> None:
    (project / "directory.py").mkdir()
    with pytest.raises(CommandError, match=message):
        find_file(str(project / name))
