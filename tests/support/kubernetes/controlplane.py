"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and the controllers that a job's life needs.

Garbage collection, namespaces, service accounts and aggregated roles are those of the real controller-manager; there is
no node, see `tests.support.kubernetes.fake_kubelet`. Binaries come from `make kubernetes`.
"""

import ctypes
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainwright.kube.client.kubeconfig import ClusterConfig, load_kubeconfig, merge_into_kubeconfig
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS

ROOT = Path(__file__).parents[3]
START_SECONDS = 120
_ADMIN = "admin"
_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "deployment-controller",
    "replicaset-controller",
    "job-controller",
    "statefulset-controller",
    "daemonset-controller",
    "ttl-after-finished-controller",
    "resourcequota-controller",
)
AUDITED = "audited"
"""The user of the shared control plane whose requests, reads too, are in its audit log."""
AUDIT_WRITES: Sequence[Object] = ({"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"})
AUDIT_ONE_USER: Sequence[Object] = ({"level": "Metadata", "users": [AUDITED]}, {"level": "None"})
# The limit of 20 requests a second would let a test wait for what others left behind: hundreds of objects to delete.
CONTROLLER_MANAGER_FLAGS = ("--secure-port=0", "--leader-elect=false", "--kube-api-qps=1000", "--kube-api-burst=1000")


@dataclass(frozen=True)
class ControlPlane:
    """How to reach the running control plane."""

    config: ClusterConfig
    kubeconfig: Path
    kubectl: Path
    apiserver: "Daemon"
    etcd: "Daemon"
    users: Mapping[str, Path]
    """By name: the kubeconfig of each further user."""
    audit_log: Path
    """The audit log, if there are rules for it."""


class Daemon:
    """One component as a child process that never outlives the test run."""

    def __init__(self, *command: str | Path, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.command = [str(word) for word in command]
        self.env = env
        self.log = log
        self._output: IO[bytes] = log.open("ab")
        self._process = self._spawn()

    def _spawn(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self.command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises with the end of the log if the process has ended."""
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"{self.command[0]} ended with {code}:\n{self.log.read_text()[-3000:]}")

    def stop(self, *, kill: bool = False) -> None:
        self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Stops the process without closing its connections, so that it does not answer."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float) -> int:
        """Waits until the process ends by itself; returns its exit code."""
        return self._process.wait(seconds)

    def restart(self) -> None:
        self._process = self._spawn()

    def close(self) -> None:
        if self._process.poll() is None:
            self.stop()
        self._output.close()


def binaries() -> Path:
    """The directory of the Kubernetes binaries, which `make kubernetes` builds."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(assets)
    return newest_build("kubernetes", "run `make kubernetes`, or set KUBEBUILDER_ASSETS")


def newest_build(name: str, advice: str) -> Path:
    """The directory of the last complete build of that name in the per-user cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright" / name
    complete = sorted(cache.glob("*/complete"), key=lambda mark: mark.stat().st_mtime)
    if not complete:
        raise RuntimeError(f"no binaries below {cache}: {advice}")
    return complete[-1].parent


@contextmanager
def running_control_plane(
    directory: Path, *, definitions: Sequence[Object] = (), users: Sequence[str] = (), audit: Sequence[Object] = ()
) -> Iterator[ControlPlane]:
    """Starts the control plane in `directory`, waits until it is ready, and ends it afterwards.

    `definitions` are CustomResourceDefinitions to begin with: the garbage collector finds kinds that are added later
    only after up to 30 seconds. `users` are cluster administrators with names of their own in the audit log, which has
    the rules `audit`.
    """
    assets = binaries()
    tokens = {user: secrets.token_hex(16) for user in (_ADMIN, *users)}
    _write_credentials(directory, tokens)
    audit_log = directory / "audit.log"
    daemons: list[Daemon] = []
    with held_ports(3) as (client_port, peer_port, api_port), _closing(daemons):
        etcd = Daemon(
            assets / "etcd", *etcd_flags(directory / "etcd", client_port, peer_port), log=directory / "etcd.log"
        )
        daemons.append(etcd)
        apiserver = Daemon(
            assets / "kube-apiserver",
            *_apiserver_flags(directory, client_port, api_port),
            *(_audit_flags(directory, audit_log, audit) if audit else ()),
            log=directory / "apiserver.log",
        )
        daemons.append(apiserver)
        server = f"https://127.0.0.1:{api_port}"
        ca_data = _wait_until_ready(server, directory / "pki" / "apiserver.crt", daemons)

        kubeconfig = directory / "kubeconfig"
        kubeconfigs = {user: directory / f"kubeconfig-{user}" for user in users}
        for user, path in {_ADMIN: kubeconfig, **kubeconfigs}.items():
            merge_into_kubeconfig(path, name="real", server=server, ca_data=ca_data, token=tokens[user])
        config = load_kubeconfig(kubeconfig)
        _define(config, definitions)
        daemons.append(
            Daemon(
                assets / "kube-controller-manager",
                *_controller_manager_flags(directory, kubeconfig),
                log=directory / "controller-manager.log",
            )
        )
        yield ControlPlane(config, kubeconfig, assets / "kubectl", apiserver, etcd, kubeconfigs, audit_log)


@contextmanager
def _closing(daemons: Sequence[Daemon]) -> Iterator[None]:
    try:
        yield
    finally:
        for daemon in reversed(daemons):
            daemon.close()


def _define(config: ClusterConfig, definitions: Sequence[Object]) -> None:
    client = SyncClient(config)
    for definition in definitions:
        client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    client.close()


def etcd_flags(data: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        "--name=test",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver_flags(directory: Path, etcd_port: int, port: int) -> list[str]:
    pki = directory / "pki"
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={pki}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
    ]


def _audit_flags(directory: Path, log: Path, rules: Sequence[Object]) -> list[str]:
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [*rules],
    }
    (directory / "audit-policy.json").write_text(json.dumps(policy))
    return [f"--audit-policy-file={directory / 'audit-policy.json'}", f"--audit-log-path={log}"]


def _controller_manager_flags(directory: Path, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={directory / 'pki' / 'sa.key'}",
        f"--controllers={','.join(_CONTROLLERS)}",
        *CONTROLLER_MANAGER_FLAGS,
    ]


def _write_credentials(directory: Path, tokens: Mapping[str, str]) -> None:
    pki = directory / "pki"
    pki.mkdir(parents=True)
    lines = (f'{token},{user},{user},"system:masters"\n' for user, token in tokens.items())
    (pki / "tokens.csv").write_text("".join(lines))
    write_service_account_key(pki)


def write_service_account_key(pki: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    (pki / "sa.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    (pki / "sa.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _wait_until_ready(server: str, certificate: Path, daemons: list[Daemon]) -> bytes:
    """Polls /readyz; returns the certificate to trust."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for daemon in daemons:
            daemon.check()
        try:
            context = ssl.create_default_context(cafile=str(certificate))
            with urllib.request.urlopen(f"{server}/readyz", context=context, timeout=5):
                return certificate.read_bytes()
        except urllib.error.HTTPError as not_yet:
            not_yet.close()  # otherwise the open connection causes a ResourceWarning in a later test
            time.sleep(0.05)
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"kube-apiserver was not ready within {START_SECONDS} s:\n{daemons[-1].log.read_text()[-3000:]}")


def held_port() -> socket.socket:
    """Reserves a loopback port until it is closed. It does not listen, so that a server with SO_REUSEADDR can bind the
    port, stop and bind it again. A port that is merely free could be taken by another process meanwhile."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    return place


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """The same for several ports of servers that run within the block."""
    with ExitStack() as stack:
        yield [stack.enter_context(held_port()).getsockname()[1] for _ in range(count)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
