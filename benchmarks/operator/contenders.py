"""The operators that are compared: ours, an earlier revision of ours, and the Go training-operator v1.9.4."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml

from benchmarks.operator.revisions import commit_of, trainwright_at
from benchmarks.processes import TRAINWRIGHT
from tests.support.kubernetes.controlplane import ControlPlane, Daemon, free_ports
from tests.support.kubernetes.go_operator import TUNED, running_go_operator
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.objects import Object


def our_definition(kind: str) -> Object:
    return render_crd(KINDS[kind])


Start = Callable[[ControlPlane, Path, str], AbstractContextManager[Daemon]]
"""Starts the operator for the jobs of one kind, which it is named, with its log in a directory."""


@dataclass(frozen=True)
class Contender:
    name: str
    label: str
    start: Start
    bounded: bool = False
    """True if it is too slow for a whole run: only its rate in the first seconds is measured."""
    definition: Callable[[str], Object] = our_definition
    """Its CustomResourceDefinition of a kind. The Go operator gets ours, which costs the server less."""


def earlier(revision: str) -> Contender:
    """Our own operator as it was at a revision, with the CustomResourceDefinitions of that time."""
    commit = commit_of(revision)
    command = trainwright_at(commit)

    def definition(kind: str) -> Object:
        shown = subprocess.run([*command, "crds"], stdout=subprocess.PIPE, check=True).stdout
        return next(one for one in yaml.safe_load_all(shown) if one["spec"]["names"]["kind"] == kind)

    return Contender("base", commit[:12], partial(_trainwright, command), definition=definition)


@contextmanager
def _trainwright(command: Sequence[str], plane: ControlPlane, directory: Path, kind: str) -> Iterator[Daemon]:
    metrics, health, webhook = free_ports(3)
    operator = Daemon(
        *command,
        "operator",
        f"--kubeconfig={plane.kubeconfig}",
        f"--enable-scheme={kind}",  # the Go operator, too, runs the controller of this kind alone
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--webhook-server-port={webhook}",
        log=directory / "operator.log",
    )
    try:
        yield operator
    finally:
        operator.close()


def _peer(*flags: str) -> Start:
    return lambda plane, directory, kind: running_go_operator(plane, directory=directory, flags=flags, kinds=[kind])


OURS = Contender("ours", "ours", partial(_trainwright, TRAINWRIGHT))
TUNED_PEER = Contender("go-tuned", "Go, tuned", _peer(*TUNED))
DEFAULT_PEER = Contender("go-defaults", "Go, defaults", _peer(), bounded=True)
CONTENDERS = (OURS, TUNED_PEER, DEFAULT_PEER)
