"""The same commands on the embedded cluster and on the real kube-apiserver, each in a namespace of its own."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.api.kinds import KINDS
from trainwright.cli.main import cli
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY
from trainwright.objects.resources import NAMESPACES

_numbers = itertools.count(1)


@dataclass
class Cluster:
    """Calls commands in this process, for one namespace of a cluster."""

    flags: tuple[str, ...]
    namespace: str
    client: SyncClient

    def call(self, command: str, *arguments: str, stdin: str | None = None) -> Result:
        words = [command, *self.flags, "-n", self.namespace, *arguments]
        return CliRunner().invoke(cli, words, input=stdin, prog_name="trainwright")

    def succeed(self, command: str, *arguments: str) -> str:
        """Standard output of a command that must end with 0."""
        result = self.call(command, *arguments)
        assert result.exit_code == 0, f"{result.exit_code}: {result.output}{result.exception!r}"
        return result.stdout

    def fail(self, command: str, *arguments: str) -> str:
        """The error of a command that must end with 1."""
        result = self.call(command, *arguments)
        assert result.exit_code == 1, f"{result.exit_code}: {result.output}{result.exception!r}"
        return result.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.succeed("ps", "-o", "json", *arguments))

    def create(self, job: Object, **status: Any) -> Object:
        """Creates a job, with a status that no operator has written."""
        resource = KINDS[job["kind"]].resource
        created = self.client.create(resource, job, namespace=self.namespace)
        if not status:
            return created
        name = created["metadata"]["name"]
        return self.client.patch(resource, name, {"status": status}, namespace=self.namespace, subresource="status")


def in_directory(job: Object, directory: Path) -> Object:
    """The job as `run` creates it for a manifest in this directory: all its pods start there."""
    job["metadata"]["annotations"] = {DIRECTORY: str(directory)}
    return job


@pytest.fixture(scope="package")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpCommand]:
    """One cluster for the tests of all these commands: each has a namespace of its own."""
    with up_command(tmp_path_factory.mktemp("embedded")) as up:
        yield up


@pytest.fixture
def embedded_namespace(embedded: UpCommand) -> Iterator[Cluster]:
    with SyncClient(embedded.config) as client:
        name = f"jobs-{next(_numbers)}"
        client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield Cluster(("--data-dir", str(embedded.data.path)), name, client)
        client.delete(NAMESPACES, name)


@pytest.fixture
def by_api(embedded: UpCommand, embedded_namespace: Cluster) -> Cluster:
    """The same namespace as one of any cluster: by a kubeconfig, from which commands do not see that it is here."""
    flags = ("--kubeconfig", str(embedded.data.kubeconfig))
    return Cluster(flags, embedded_namespace.namespace, embedded_namespace.client)


@pytest.fixture
def real(control_plane: ControlPlane, real_namespace: str) -> Iterator[Cluster]:
    with SyncClient(control_plane.config) as client:
        yield Cluster(("--kubeconfig", str(control_plane.kubeconfig)), real_namespace, client)


@pytest.fixture(
    params=["embedded_namespace", pytest.param("real", marks=pytest.mark.apiserver)], ids=["embedded", "real"]
)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue("real" if request.param == "real" else "embedded_namespace")
    return found
