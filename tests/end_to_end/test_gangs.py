"""`up --gang-scheduler-name`: jobs start as a whole."""

import json
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from tests.support.objects.shell_jobs import shell_job

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize(
    ("name", "group"), [("volcano", "scheduling.volcano.sh"), ("my-scheduler", "scheduling.x-k8s.io")]
)
def test_job_runs_in_a_pod_group(name: str, group: str, tmp_path: Path, kubectl_binary: Path) -> None:
    with up_command(tmp_path, "--gang-scheduler-name", name) as up:
        commands = Commands(up, kubectl_binary)
        gate = tmp_path / "gate"  # the group is deleted when the job has ended
        script = f"until [ -e {gate} ]; do sleep 0.05; done"
        job = shell_job("pair", script, script, workers=1)
        commands.kubectl("apply", "-f", "-", stdin=json.dumps(job))
        commands.kubectl("wait", "--for=create", f"podgroups.{group}/pair", "--timeout=60s")
        found = commands.get(f"podgroups.{group}", "pair")
        assert found["spec"]["minMember"] == 2
        gate.touch()
        commands.kubectl("wait", "--for=condition=Succeeded", "pytorchjob/pair", "--timeout=60s")
        (pod, *_) = commands.get("pods")["items"]
        assert pod["spec"]["schedulerName"] == name
        events = commands.get("events")["items"]
        assert "UnknownScheduler" not in {event["reason"] for event in events}
