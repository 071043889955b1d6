"""Fixtures that every part of the suite may ask for: the real control plane and namespaces on it."""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cluster.controlplane import ControlPlane, binaries, running_control_plane
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

# Else pytest-asyncio makes an event loop before the first test that nobody closes: a warning that fails a later one.
asyncio.set_event_loop(None)

# A shell that starts the tests in the background has them and all their children ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A seeded sample runs with every change; `make test-all` explores further.
settings.register_profile("sample", max_examples=50, derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "all", max_examples=2000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "sample"))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One real kube-apiserver for the whole run. It fails the tests if it cannot start: nothing is skipped."""
    definitions = [render_crd(kind) for kind in KINDS.values()]
    with running_control_plane(tmp_path_factory.mktemp("control-plane"), definitions=definitions) as plane:
        yield plane


@pytest.fixture(scope="session")
def kubectl_binary() -> Path:
    return binaries() / "kubectl"


_TOLD = pytest.StashKey[list[str]]()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A line for the reader of a run that passed, such as how much was compared; it stands at the end of the output."""
    return request.config.stash.setdefault(_TOLD, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)


_numbers = itertools.count(1)


@pytest.fixture
def real_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of its own for each test, on the real API server."""
    name = f"test-{next(_numbers)}"
    client = SyncClient(control_plane.config)
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # The real controller makes it a moment later, and pods are refused until it is there.
    with suppress(AlreadyExists):
        client.create(
            SERVICE_ACCOUNTS,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}},
        )
    yield name
    client.delete(NAMESPACES, name)
    client.close()
