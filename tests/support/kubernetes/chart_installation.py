"""A release of the chart on the real API server whose Deployment runs as a process: there is no node."""

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.commands.helm import CHART, Helm
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.kubernetes.controlplane import ControlPlane, Daemon, held_ports
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS
from trainwright.kube.client.kubeconfig import merge_into_kubeconfig
from trainwright.objects import Object


@dataclass
class Installation:
    """`install` it, then run its operator within `ready`."""

    helm: Helm
    kubectl: RealKubectl
    plane: ControlPlane
    namespace: str
    directory: Path
    values: Object
    health: int

    @property
    def release(self) -> str:
        return f"release-{self.namespace}"

    def install(self) -> None:
        values = self.directory / "values.yaml"
        values.write_text(json.dumps(self.values))
        self.helm("install", self.release, CHART, "--namespace", self.namespace, "--values", values)
        if self.values["webhook"]["enabled"]:
            self._lead_to_this_machine()

    def _lead_to_this_machine(self) -> None:
        """There is no network of pods: the name of the Service leads to this machine and to the port of the process."""
        external = {
            "spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}
        }
        self.kubectl("-n", self.namespace, "patch", "service", "operator", "-p", json.dumps(external))
        port = self.values["webhook"]["port"]
        paths = (f"/webhooks/{number}/clientConfig/service/port" for number in range(len(KINDS)))
        patch = [{"op": "replace", "path": path, "value": port} for path in paths]
        self.kubectl("patch", "validatingwebhookconfiguration", self.release, "--type=json", "-p", json.dumps(patch))

    def process(self) -> Daemon:
        """Where nothing can be written: the container has a read-only root and no volume."""
        container = self.kubectl.get("-n", self.namespace, "deployment", "operator")["spec"]["template"]["spec"]
        token = self.kubectl("-n", self.namespace, "create", "token", container["serviceAccountName"]).strip()
        kubeconfig, config = self.directory / "kubeconfig", self.plane.config
        assert config.ca_data
        merge_into_kubeconfig(kubeconfig, name="pod", server=config.server, ca_data=config.ca_data, token=token)
        env = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(kubeconfig),
            "MY_POD_NAMESPACE": self.namespace,
            **dict.fromkeys(("HOME", "TMPDIR"), "/nonexistent"),
        }
        command = (sys.executable, "-m", *container["containers"][0]["command"])
        args = container["containers"][0]["args"]
        return Daemon(*command, *args, log=self.directory / "operator.log", env=env)

    @property
    def log(self) -> str:
        return (self.directory / "operator.log").read_text()

    async def readiness(self) -> str:
        return await asyncio.to_thread(self._readiness)

    def _readiness(self) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz?verbose", timeout=10) as page:
                return str(page.read().decode())
        except urllib.error.HTTPError as not_yet:
            return not_yet.read().decode()
        except OSError as error:
            return str(error)

    async def _refusal_of_a_wrong_job(self) -> str:
        wrong = JobBuilder("wrong", namespace=self.namespace).replica("Manager").manifest()
        words = ("create", "--dry-run=server", "-f", "-")
        return (await asyncio.to_thread(self.kubectl.run, *words, stdin=json.dumps(wrong))).stderr

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Runs the operator; entered when it serves its webhooks and the API server, which learns of them with a delay,
        calls them."""
        process = self.process()
        try:
            await eventually(self.readiness, lambda text: "webhook ok: serving" in text and "passed" in text)
            await eventually(self._refusal_of_a_wrong_job, lambda text: "denied the request" in text)
            yield
        finally:
            process.close()


@contextmanager
def installation_in(plane: ControlPlane, namespace: str, directory: Path) -> Iterator[Installation]:
    """Not installed yet, so that a test can change the values; uninstalled at the end."""
    with held_ports(3) as (metrics, health, webhook):
        values: Object = {
            "fullnameOverride": "operator",
            "namespace": {"create": False, "name": namespace},
            "crds": {"enabled": False},
            "aggregatedRoles": {"create": False},
            "metrics": {"port": metrics},
            "healthProbe": {"port": health},
            "webhook": {"enabled": True, "port": webhook, "configurationName": f"release-{namespace}"},
        }
        helm = Helm(directory, plane.kubeconfig)
        one = Installation(helm, RealKubectl(plane), plane, namespace, directory, values, health)
        try:
            yield one
        finally:
            helm.run("uninstall", one.release, "--namespace", namespace)
