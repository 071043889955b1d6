"""A manifest nested deeper than Python reads by itself, on the real API server, which takes it."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes.controlplane import ControlPlane, Daemon
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH

pytestmark = pytest.mark.apiserver

LEVELS = 5000
PROGRAM = """
import asyncio, pathlib, sys
from trainwright.operator.options import OperatorOptions
from trainwright.operator.main import run_operator
asyncio.run(run_operator(OperatorOptions(kubeconfig=pathlib.Path(sys.argv[1]), namespace=sys.argv[2])))
"""

Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(control_plane: ControlPlane, kubectl_binary: Path, real_namespace: str) -> Kubectl:
    def run(*arguments: str, stdin: str = "") -> str:
        command = [str(kubectl_binary), f"--kubeconfig={control_plane.kubeconfig}", f"--namespace={real_namespace}"]
        done = subprocess.run([*command, *arguments], input=stdin, capture_output=True, text=True, check=True)
        return done.stdout

    return run


@pytest.fixture
def deep_job(kubectl: Kubectl, real_namespace: str) -> Iterator[str]:
    """As text: neither Python's JSON nor ours writes such a thing."""
    job = {**JobBuilder("deep").master().raw(), "metadata": {"name": "deep"}}
    text = json.dumps(job).replace('"name": "pytorch"', f'"name": "pytorch", "x": {"[" * LEVELS}{"]" * LEVELS}')
    kubectl("create", "--raw", PYTORCH.resource.path(real_namespace), "-f", "-", stdin=text)
    yield "deep"
    # At once, not with its namespace: other tests list all jobs.
    kubectl("delete", "pytorchjob", "deep", "--wait=false")


async def test_it_fails_by_name_and_keeps_nobody_from_working(
    control_plane: ControlPlane, kubectl: Kubectl, deep_job: str, real_namespace: str, tmp_path: Path
) -> None:
    async def state(job: str) -> str:
        operator.check()
        return kubectl("get", "pytorchjob", job, "-o", "jsonpath={.status.conditions[-1:].message}")

    operator = Daemon(
        sys.executable, "-c", PROGRAM, control_plane.kubeconfig, real_namespace, log=tmp_path / "operator.log"
    )
    try:
        told = await eventually(lambda: state(deep_job), lambda message: "nested" in message)
        assert 'spec: Invalid value: "dict": must not be nested deeper than 100 levels' in told

        fine = {**JobBuilder("fine").master().raw(), "metadata": {"name": "fine"}}
        kubectl("apply", "-f", "-", stdin=json.dumps(fine))
        await eventually(lambda: state("fine"), lambda message: message == "PyTorchJob fine is created.")
    finally:
        operator.close()
