"""The operators that are compared: ours, and the Go training-operator v1.9.4 tuned and as shipped."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT
from tests.support.cluster.controlplane import ControlPlane, Daemon
from tests.support.cluster.go_operator import TUNED, running_peer


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    start: Callable[[ControlPlane, Path], AbstractContextManager[Daemon]]
    bounded: bool = False
    """Too slow for the whole: only its rate in the first seconds is measured."""


@contextmanager
def _ours(plane: ControlPlane, directory: Path) -> Iterator[Daemon]:
    # Its peer, too, looks after this kind alone.
    flags = ["--kubeconfig", str(plane.kubeconfig), "--enable-scheme", "PyTorchJob"]
    operator = Daemon(*TRAINWRIGHT, "operator", *flags, log=directory / "operator.log")
    try:
        yield operator
    finally:
        operator.close()


def _peer(*flags: str) -> Callable[[ControlPlane, Path], AbstractContextManager[Daemon]]:
    return lambda plane, directory: running_peer(plane, directory=directory, flags=flags)


OURS = Contender("ours", "ours", _ours)
TUNED_PEER = Contender("go-tuned", "Go, tuned", _peer(*TUNED))
DEFAULT_PEER = Contender("go-defaults", "Go, defaults", _peer(), bounded=True)
CONTENDERS = (OURS, TUNED_PEER, DEFAULT_PEER)
