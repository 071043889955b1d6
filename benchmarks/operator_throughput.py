"""How fast the operator brings up jobs on a real API server: 50 jobs of 8 replicas, created at once."""

import asyncio
import subprocess
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, cpu_seconds, resident_megabytes
from tests.support.controlplane import ControlPlane, running_control_plane
from trainwright.api.kinds import KINDS
from trainwright.kube.client import Client
from trainwright.kube.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.resources import PODS

KIND = KINDS["PyTorchJob"]
JOBS = 50
WORKERS = 7
LABEL = "training.kubeflow.org/job-name"
GO_OPERATOR_PODS_PER_SECOND = (5, 166, 206)  # measured on such a machine: at its defaults, and tuned (lowest, highest)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, running_control_plane(Path(name)) as plane:
        asyncio.run(_measure(plane, Path(name)))


async def _measure(plane: ControlPlane, directory: Path) -> None:
    log = directory / "operator.log"
    command = [*TRAINWRIGHT, "operator", "--kubeconfig", str(plane.kubeconfig), "--install-crds"]
    with log.open("wb") as output:
        operator = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    async with Client(plane.config) as client:
        try:
            # One job first, so that what is measured is the work and not the start.
            await _crds_installed(client, operator, log)
            await _submit(client, [_job("warm-up", workers=1)])
            cpu = cpu_seconds(operator.pid)
            seconds = await _submit(client, [_job(f"job-{number}", workers=WORKERS) for number in range(JOBS)])
            cpu = cpu_seconds(operator.pid) - cpu
            pods = JOBS * (WORKERS + 1)
            _report(pods, seconds, cpu, resident_megabytes(operator.pid))
        finally:
            operator.terminate()
            operator.wait(30)


def _report(pods: int, seconds: float, cpu: float, megabytes: float) -> None:
    rate = pods / seconds
    default, tuned_low, tuned_high = GO_OPERATOR_PODS_PER_SECOND
    print(f"{pods} pods and Services in {seconds:.2f} s: {rate:.0f} pods/s,", end=" ")
    print(f"{1000 * cpu / pods:.1f} CPU ms per pod, {megabytes:.0f} MB")
    print(f"against the Go operator as measured before: {rate / default:.0f}x its defaults ({default}/s),", end=" ")
    print(f"{rate / tuned_high:.2f}x to {rate / tuned_low:.2f}x tuned ({tuned_low} to {tuned_high}/s)")


async def _submit(client: Client, jobs: list[Object]) -> float:
    """Creates the jobs at once; the seconds until all their pods are there."""
    pods = sum(role["replicas"] for job in jobs for role in job["spec"][KIND.replicas_field].values())
    waiting = asyncio.create_task(_pods_created(client, pods))
    await asyncio.sleep(0.5)  # until the watch stands
    started = time.monotonic()
    await asyncio.gather(*(client.create(KIND.resource, job) for job in jobs))
    await waiting
    return time.monotonic() - started


async def _crds_installed(client: Client, operator: "subprocess.Popen[bytes]", log: Path) -> None:
    while True:
        try:
            await client.list(KIND.resource)
            return
        except NotFound:
            if operator.poll() is not None:
                raise RuntimeError(f"the operator ended:\n{log.read_text()}") from None
            await asyncio.sleep(0.05)


async def _pods_created(client: Client, count: int) -> None:
    """Waits for that many new pods by a watch, which costs the API server less than asking again and again."""
    version = (await client.list(PODS, label_selector=LABEL)).resource_version
    async with aclosing(client.watch(PODS, label_selector=LABEL, resource_version=version)) as events:
        async for event in events:
            count -= event.type == "ADDED"
            if count == 0:
                return


def _job(name: str, *, workers: int) -> Object:
    container = {"name": "pytorch", "image": "example.com/train:1", "command": ["true"]}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": KIND.resource.api_version,
        "kind": KIND.name,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            KIND.replicas_field: {
                "Master": {"replicas": 1, "template": template},
                "Worker": {"replicas": workers, "template": template},
            }
        },
    }
