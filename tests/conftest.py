"""Fixtures for all tests: the real control plane and namespaces on it."""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.distribution import distribute
from tests.support.kubernetes.controlplane import AUDIT_ONE_USER, AUDITED, ControlPlane, binaries, running_control_plane
from tests.support.thoroughness import without_thorough
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS
from trainwright.operator import install_crds

# Otherwise pytest-asyncio creates an event loop that it never closes, and a ResourceWarning fails a later test.
asyncio.set_event_loop(None)

# A shell that starts the tests in the background makes them and their children ignore SIGINT, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A seeded sample runs with every change; `make test-all` explores further. Neither depends on the speed of the machine.
_timeless = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("sample", _timeless, max_examples=50, derandomize=True)
settings.register_profile("all", _timeless, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "sample"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--node",
        action="append",
        choices=["overlay", "ordinary", "plain", "ordinary-plain", "kubelet"],
        help="where tests/node_behaviour runs, overlay by default (ordinary: as an unprivileged user); can be repeated",
    )


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One real kube-apiserver for the whole run. If it cannot start, the tests fail instead of being skipped."""
    definitions = [render_crd(kind) for kind in KINDS.values()]
    directory = tmp_path_factory.mktemp("control-plane")
    with running_control_plane(directory, definitions=definitions, users=[AUDITED], audit=AUDIT_ONE_USER) as plane:
        yield plane


@pytest.fixture(scope="module")
def job_plane(control_plane: ControlPlane) -> ControlPlane:
    """The real kube-apiserver with our CRDs, also if the tests of another module have changed them."""

    async def install() -> None:
        async with Client(control_plane.config) as client:
            await install_crds(client, KINDS.values())

    with ThreadPoolExecutor(1) as thread:  # asynchronous fixtures ask for this one while their event loop runs
        thread.submit(lambda: asyncio.run(install())).result()
    return control_plane


@pytest.fixture(scope="session")
def kubectl_binary() -> Path:
    return binaries() / "kubectl"


_SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture
def add_summary(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line to the end of pytest's output, also if the test passes."""
    return request.config.stash.setdefault(_SUMMARY, []).append


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker sends its lines to the process that prints."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["summary"] = session.config.stash.get(_SUMMARY, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash.setdefault(_SUMMARY, []).extend(getattr(node, "workeroutput", {}).get("summary", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_SUMMARY, []):
        terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not any("::" in argument for argument in config.args):  # a test that is named runs
        items[:], waiting = without_thorough(items)
        config.hook.pytest_deselected(items=waiting)
    distribute(items)


_numbers = itertools.count(1)


@pytest.fixture
def real_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace on the real API server for each test."""
    name = f"test-{next(_numbers)}"
    client = SyncClient(control_plane.config)
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # The controller creates it with a delay, and pods are refused without it.
    with suppress(AlreadyExists):
        client.create(
            SERVICE_ACCOUNTS,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}},
        )
    yield name
    client.delete(NAMESPACES, name)
    client.close()
