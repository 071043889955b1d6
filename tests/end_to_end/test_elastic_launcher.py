"""A running launcher sees its workers come and go, as horovodrun needs it."""

import json

from tests.support.commands.kubectl import Commands
from tests.support.waiting import wait_until

LAUNCHER = """
seen=none
until [ -e /tmp/end ]; do
  now=$(echo $(/etc/mpi/discover_hosts.sh))
  if [ "$now" != "$seen" ]; then
    echo "hosts: $now"
    for host in $now; do /etc/mpi/kubexec.sh ${host%:*} hostname 2>/dev/null; done
    seen=$now
  fi
  sleep 0.05
done
"""
JOB = f"""
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {{name: hosts}}
spec:
  slotsPerWorker: 2
  runPolicy: {{cleanPodPolicy: Running}}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec: {{containers: [{{name: launcher, image: trainwright/host, command: [sh, -c, {json.dumps(LAUNCHER)}]}}]}}
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template: {{spec: {{containers: [{{name: worker, image: trainwright/host}}]}}}}
"""


def test_discovered_hosts_follow_scaling_and_replacement_of_workers(commands: Commands) -> None:
    def lines() -> list[str]:
        return commands.kubectl("logs", "hosts-launcher", "-c", "launcher").splitlines()

    def wait_for(*expected: str) -> None:
        """Until the last lines are these."""
        wait_until(lambda: lines()[-len(expected) :] == list(expected), seconds=60)

    commands.kubectl("apply", "-f", "-", stdin=JOB)
    commands.kubectl("wait", "--for=condition=Ready", "pod/hosts-launcher", "--timeout=60s")
    wait_for("hosts: hosts-worker-0:2", "hosts-worker-0")

    commands.trainwright("scale", "hosts", "--replicas", "3")
    names = [f"hosts-worker-{index}" for index in range(3)]
    wait_for("hosts: hosts-worker-0:2 hosts-worker-1:2 hosts-worker-2:2", *names)  # exec is allowed in the new ones

    patch = '{"spec":{"mpiReplicaSpecs":{"Worker":{"replicas":1}}}}'
    commands.kubectl("patch", "mpijob", "hosts", "--type=merge", "-p", patch)
    wait_for("hosts: hosts-worker-0:2", "hosts-worker-0")

    def uid() -> str:
        return commands.kubectl("get", "pod", "--ignore-not-found", "hosts-worker-0", "-o=jsonpath={.metadata.uid}")

    replaced = uid()
    # kubectl's own wait reads the pod, then lists it: of a pod that was replaced in between it waits for the new one.
    commands.kubectl("delete", "pod", "hosts-worker-0", "--wait=false")
    wait_until(lambda: uid() not in {"", replaced})
    commands.kubectl("wait", "--for=condition=Ready", "pod/hosts-worker-0", "--timeout=60s")
    wait_for("hosts: hosts-worker-0:2", "hosts-worker-0")

    commands.kubectl("exec", "hosts-launcher", "-c", "launcher", "--", "touch", "/tmp/end")
    commands.kubectl("wait", "--for=condition=Succeeded", "mpijob/hosts", "--timeout=60s")
    status = commands.get("mpijob", "hosts")["status"]
    assert "restarts" not in status  # neither scaling nor the deletion counts
