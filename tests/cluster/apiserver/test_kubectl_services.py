"""kubectl prints the same about Services and endpoints for the embedded server and the real one."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.cluster.embedded_apiserver import TOKEN, running_embedded
from trainwright.kube.client.kubeconfig import merge_into_kubeconfig

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

MANIFEST = """
apiVersion: v1
kind: Endpoints
metadata: {name: manual}
subsets:
- addresses: [{ip: 192.0.2.1}, {ip: 192.0.2.2}]
  notReadyAddresses: [{ip: 192.0.2.3}]
  ports: [{name: a, port: 80}, {name: b, port: 81, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: manual-abc, labels: {kubernetes.io/service-name: manual}}
addressType: IPv4
endpoints:
- {addresses: [192.0.2.1], conditions: {ready: true}}
- {addresses: [192.0.2.3], conditions: {ready: false}}
ports: [{name: a, port: 80}]
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web, tier: front}}
spec: {containers: [{name: c, image: i, ports: [{containerPort: 8080}]}]}
"""
COMMANDS = [
    "create service clusterip plain --tcp=80:8080 --tcp=443",
    "create service clusterip headless --clusterip=None",
    "create service nodeport node --tcp=80",
    "create service loadbalancer balanced --tcp=80:8080",
    "create service externalname outside --external-name=example.com",
    "create -f MANIFEST",
    "expose pod web",
    "expose pod web --name=named --port=80 --target-port=http --type=NodePort --session-affinity=ClientIP",
    "get services -o wide",
    "get svc plain -o yaml",
    "get svc named -o yaml",
    "get endpoints",
    "get endpointslices",
    "get endpointslice manual-abc -o yaml",
    "describe service plain",
    "describe service named",
    "describe endpoints manual",
    "set selector service plain app=other",
    'patch svc plain --type=json -p [{"op":"replace","path":"/spec/clusterIP","value":""}]',
    'patch svc node -p {"spec":{"type":"ClusterIP"}}',
    "create service nodeport low --tcp=80 --node-port=80",
    "delete svc named plain",
    "get services --field-selector=spec.type=ExternalName",
]


async def run(binary: Path, directory: Path, kubeconfig: Path, namespace: str) -> list[str]:
    """The output of each command, with what differs between any two servers masked."""
    manifest = directory / "manifest.yaml"
    manifest.write_text(MANIFEST)
    shown = []
    for line in COMMANDS:
        words = line.replace("MANIFEST", str(manifest)).split(" ")
        command = [str(binary), f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", *words]
        pipe, both = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
        process = await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=both, env={"HOME": str(directory), "PATH": "/usr/bin:/bin"}
        )
        out, _ = await process.communicate()
        shown.append(f"$ kubectl {line}\n{masked(out.decode(), namespace)}")
    return shown


def masked(text: str, namespace: str) -> str:
    text = text.replace(namespace, "NAMESPACE")
    text = re.sub(r"\b(10\.96|127\.(1[6-9]|2\d|3[01]))\.\d+\.\d+\b", "ADDRESS", text)
    text = re.sub(r"\b3[0-2]\d{3}\b", "30000", text)
    text = re.sub(r'(uid|resourceVersion|creationTimestamp): "?[-\w:]+"?', r"\1: X", text)
    text = re.sub(
        r"^Events:.*(\n {2}.*)*", "Events", text, flags=re.MULTILINE
    )  # those of conflicts between controllers
    # Columns are as wide as their values.
    return re.sub(r" {2,}(\d+s)?", "  ", re.sub(r"\b\d+s\b", "AGE", text))


async def test_every_command_prints_the_same(
    control_plane: ControlPlane, real_namespace: str, kubectl_binary: Path, tmp_path: Path
) -> None:
    async with running_embedded() as embedded:
        kubeconfig = tmp_path / "kubeconfig"
        server, ca_data = embedded.config.server, embedded.ca_data
        merge_into_kubeconfig(kubeconfig, name="e", server=server, ca_data=ca_data, token=TOKEN)
        for name in ("embedded", "real"):
            (tmp_path / name).mkdir()
        create = [str(kubectl_binary), f"--kubeconfig={kubeconfig}", "create", "namespace", real_namespace]
        assert await (await asyncio.create_subprocess_exec(*create)).wait() == 0
        ours, real = await asyncio.gather(
            run(kubectl_binary, tmp_path / "embedded", kubeconfig, real_namespace),
            run(kubectl_binary, tmp_path / "real", control_plane.kubeconfig, real_namespace),
        )
    assert "\n".join(ours) == "\n".join(real)
