"""A real cluster of one node: control plane, scheduler, containerd, kubelet, kube-proxy and CoreDNS.

It lives in namespaces of its own (see `holder`) and leaves nothing behind. It needs root, the binaries of
`make kubernetes` and of `tools/build-node`, and containerd, runc, the CNI plugins and iptables of the system.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from tests.support.kubernetes.controlplane import (
    START_SECONDS,
    Daemon,
    binaries,
    etcd_flags,
    newest_build,
    write_service_account_key,
)
from tests.support.node import configuration
from tests.support.node.case_images import add_case_images
from tests.support.node.configuration import DNS_READY_PORT, NODE_ADDRESS, SERVER, SERVICES, Layout
from tests.support.node.holder import Holder, cgroup_of_the_node
from tests.support.node.images import host_image, pause_image
from tests.support.node.namespace import IMAGE, KUBELET, RunningNode, condition
from tests.support.waiting import eventually
from trainwright.cluster.images.archives import save_archive
from trainwright.cluster.images.store import ImageStore
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import load_kubeconfig, merge_into_kubeconfig
from trainwright.objects.resources import NODES, Resource
from trainwright.objects.resources import SERVICES as SERVICE_OBJECTS

_PATIENCE = 90.0
_ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")


@asynccontextmanager
async def real_cluster(directory: Path) -> AsyncIterator[RunningNode]:
    """Starts the cluster with its logs in `directory`. The calling thread moves into the cluster's network for good."""
    if os.getuid() != 0:
        raise RuntimeError("a real node needs root")
    with ExitStack() as stack:
        cgroup = stack.enter_context(cgroup_of_the_node())
        shared = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainwright-host-path-")))
        holder = Holder(directory, NODE_ADDRESS, SERVICES)
        stack.callback(holder.close)
        holder.enter_network()
        cluster = _Cluster(holder, Layout(directory), cgroup)
        stack.callback(cluster.close)
        await cluster.start_control_plane()
        async with Client(load_kubeconfig(cluster.layout.kubeconfig("admin"))) as client:
            await cluster.start_node(client)
            yield RunningNode(KUBELET, client, cluster.layout.kubeconfig("admin"), shared, _PATIENCE, holder.processes)


def node_binaries() -> Path:
    return newest_build("node", "run tools/build-node")


class _Cluster:
    def __init__(self, holder: Holder, layout: Layout, cgroup: str) -> None:
        self.layout = layout
        self._holder = holder
        self._cgroup = cgroup
        self._assets, self._node_assets = binaries(), node_binaries()
        self._daemons: list[Daemon] = []
        self._tokens = {user: secrets.token_hex(16) for user in configuration.USERS}

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop(kill=True)
            daemon.close()

    async def start_control_plane(self) -> None:
        layout, assets = self.layout, self._assets
        self._write_credentials()
        self._start(assets / "etcd", *etcd_flags(layout.data / "etcd", 2379, 2380))
        self._start(assets / "kube-apiserver", *configuration.apiserver_flags(layout))
        await self._until_answering(f"{SERVER}/readyz")
        authority = (layout.pki / "apiserver.crt").read_bytes()
        for user, token in self._tokens.items():
            merge_into_kubeconfig(layout.kubeconfig(user), name="real", server=SERVER, ca_data=authority, token=token)
        self._start(assets / "kube-controller-manager", *configuration.controller_manager_flags(layout))
        self._start(self._node_assets / "kube-scheduler", *configuration.scheduler_flags(layout))

    async def start_node(self, client: Client) -> None:
        layout, assets = self.layout, self._node_assets
        self._start("containerd", "--config", configuration.containerd_config(layout))
        await self._until_listening(layout.containerd_socket)
        await asyncio.to_thread(self._import_images)
        self._start(assets / "kubelet", *configuration.kubelet_flags(layout, self._cgroup))
        self._start(assets / "kube-proxy", *configuration.kube_proxy_flags(layout))
        self._start(assets / "coredns", "-conf", configuration.corefile(layout))
        service, endpoints = configuration.dns_objects()
        await client.create(SERVICE_OBJECTS, service)
        await client.create(_ENDPOINT_SLICES, endpoints)
        await self._until_answering(f"http://{NODE_ADDRESS}:{DNS_READY_PORT}/ready")

        async def ready() -> bool:
            self._check()
            nodes = (await client.list(NODES)).items
            return any(condition(node, "Ready").get("status") == "True" for node in nodes)

        await eventually(ready, bool, seconds=START_SECONDS)

    def _start(self, *words: str | Path) -> None:
        self._daemons.append(self._holder.daemon(*words, name=Path(words[0]).name))

    def _check(self) -> None:
        for daemon in self._daemons:
            daemon.check()

    def _write_credentials(self) -> None:
        pki = self.layout.pki
        pki.mkdir()
        write_service_account_key(pki)
        lines = []
        for user, token in self._tokens.items():
            name, group = configuration.USERS[user]
            lines.append(f'{token},{name},{name},"{group}"\n')
        (pki / "tokens.csv").write_text("".join(lines))

    def _import_images(self) -> None:
        layout = self.layout
        pause_image(configuration.PAUSE_IMAGE, self._node_assets / "pause", pause := layout.directory / "pause.tar")
        host_image(f"docker.io/{IMAGE}", host := layout.directory / "host.tar")
        store = ImageStore(layout.directory / "case-images")
        with (cases := layout.directory / "cases.tar").open("wb") as stream:
            save_archive(store, add_case_images(store), stream)
        shutil.rmtree(store.directory)
        for archive in (pause, host, cases):
            self._holder.run(
                *("ctr", "--address", layout.containerd_socket, "--namespace", "k8s.io"), "image", "import", archive
            )
            archive.unlink()

    async def _until_listening(self, socket: Path) -> None:
        async def listens() -> bool:
            self._check()
            try:
                _, writer = await asyncio.open_unix_connection(socket)
            except OSError:
                return False
            writer.close()
            return True

        await eventually(listens, bool, seconds=START_SECONDS)

    async def _until_answering(self, url: str) -> None:
        async def answers() -> bool:
            self._check()
            try:
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
                    session.get(url, ssl=False) as response,
                ):
                    return response.status == 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                return False

        await eventually(answers, bool, seconds=START_SECONDS)
