"""The Go training-operator v1.9.4 as a process on this machine, working on the real control plane of the tests.

Ours is compared with it. Binary, CRDs and webhook manifest come from `make kubernetes`.
"""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes.controlplane import ControlPlane, Daemon, held_ports
from trainwright.cluster.pki import server_context
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import NAMESPACES, SECRETS

HOME = "kubeflow"
"""The namespace of the operator and of its Secret."""

TUNED = ("--kube-api-qps=10000", "--kube-api-burst=10000", "--controller-threads=10")
"""Without these it sends 20 requests per second and reconciles one job at a time."""

_START_SECONDS = 120
_CERTIFICATES = Path("k8s-webhook-server/serving-certs")


class GoOperator(Daemon):
    webhooks: str
    """The URL of its webhook server."""
    authority: Path
    """The CA certificate of that server."""


@dataclass(frozen=True)
class GoOperatorFiles:
    """The paths of the Go operator's files."""

    training_operator: Path
    crds: Path
    """A directory of upstream's CustomResourceDefinitions, `kubeflow.org_pytorchjobs.yaml` and so on."""
    webhooks: Path
    """Upstream's ValidatingWebhookConfiguration."""


def go_operator_files() -> GoOperatorFiles:
    """The files of the Go operator, which `make kubernetes` builds."""
    if given := os.environ.get("TRAINWRIGHT_PEERS"):
        return _files_in(Path(given))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright" / "peers"
    complete = sorted(cache.glob("training-operator-*/complete"), key=lambda mark: mark.stat().st_mtime)
    if not complete:
        raise RuntimeError(
            f"no Go training-operator below {cache}: run `make kubernetes`, or set TRAINWRIGHT_PEERS"
            " (KUBEBUILDER_ASSETS names Kubernetes' own binaries alone)"
        )
    return _files_in(complete[-1].parent)


@contextmanager
def running_go_operator(
    plane: ControlPlane, *, directory: Path, flags: Sequence[str] = (), kinds: Sequence[str] = ("PyTorchJob",)
) -> Iterator[GoOperator]:
    """The Go operator for jobs of these kinds, ready when entered, with its log in `directory`.

    No webhook is registered. Several can run at the same time. Each ends with the block or with the test process.
    """
    binary = go_operator_files().training_operator
    with held_ports(3) as (metrics, health, webhook):
        secret = f"training-operator-{health}"
        _make_secret(plane, secret)
        _make_certificates(directory)
        operator = GoOperator(
            binary,
            f"--kubeconfig={plane.kubeconfig}",
            *(f"--enable-scheme={kind.lower()}" for kind in kinds),
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--webhook-server-port={webhook}",
            f"--webhook-secret-name={secret}",
            *flags,
            log=directory / "training-operator.log",
            env={**os.environ, "MY_POD_NAMESPACE": HOME, "TMPDIR": str(directory)},
        )
        operator.webhooks, operator.authority = f"https://127.0.0.1:{webhook}", directory / "pki" / "ca.pem"
        try:
            _wait_until_ready(health, operator)
            yield operator
        finally:
            operator.close()


def _files_in(directory: Path) -> GoOperatorFiles:
    manifests = directory / "manifests"
    files = GoOperatorFiles(
        directory / "training-operator", manifests / "crds", manifests / "webhook" / "manifests.yaml"
    )
    for part in (files.training_operator, files.crds, files.webhooks):
        if not part.exists():
            raise RuntimeError(f"{part} is missing: remove {directory} and run `make kubernetes`")
    return files


def _make_secret(plane: ControlPlane, name: str) -> None:
    """Creates the empty Secret for certificates without which the operator does not start."""
    with SyncClient(plane.config) as client:
        with suppress(AlreadyExists):
            client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
        client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": HOME}})


def _make_certificates(directory: Path) -> None:
    """Writes certificates where a kubelet mounts them. The server reads them below TMPDIR."""
    server_context(directory / "pki")
    served = directory / _CERTIFICATES
    served.mkdir(parents=True)
    for name in ("tls.crt", "tls.key"):
        (served / name).write_bytes((directory / "pki" / "server.pem").read_bytes())
    _make_awaited_file(Path("/tmp") / _CERTIFICATES / "tls.crt")


def _make_awaited_file(path: Path) -> None:
    """The operator waits until this file exists, whatever TMPDIR is, but never reads it: an empty one serves all runs
    of all users, who may add it again where a cleaner of /tmp has removed it."""
    for directory in (path.parents[1], path.parent):
        with suppress(FileExistsError):
            directory.mkdir()
            directory.chmod(0o1777)
    try:
        if not path.exists():
            path.touch()
    except PermissionError as error:
        raise RuntimeError(f"the Go operator needs {path}, which another user's files prevent: {error}") from error


def _wait_until_ready(port: int, operator: Daemon) -> None:
    """Polls /readyz."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        operator.check()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except urllib.error.HTTPError as not_yet:
            not_yet.close()
        except OSError:
            pass
        time.sleep(0.05)
    raise RuntimeError(f"the Go operator was not ready in {_START_SECONDS} s:\n{operator.log.read_text()[-3000:]}")
