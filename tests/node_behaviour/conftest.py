"""Every case runs on the nodes that `--node` names; see README.md."""

import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.differential.explanations import rows_of_the_page
from tests.support.node.cases import Case, CaseRunner
from tests.support.node.embedded_node import ORDINARY, embedded_node
from tests.support.node.namespace import KUBELET, RunningNode

_PARALLEL = 8
_EMBEDDED = ("overlay", "plain")
_PLAIN = "at plain a pod has no mounts, devices, users, hostname and hosts file of its own"
_CASES = pytest.StashKey[dict[str, list[Case]]]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "node" in metafunc.fixturenames:
        levels = metafunc.config.getoption("--node") or ["overlay"]
        metafunc.parametrize("node", levels, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (level := _level(item)) is None:
            continue
        item.add_marker(pytest.mark.xdist_group(f"node {level}"))  # all files share one cluster
        sandbox = ORDINARY.get(level, level)
        if item.get_closest_marker("as_root") and (level in ORDINARY or os.getuid() != 0):
            item.add_marker(pytest.mark.skip(reason="only root can do it"))
        for mark in item.iter_markers("only"):
            if sandbox not in mark.args:
                reason = _PLAIN if sandbox == "plain" else f"only for {', '.join(mark.args)}"
                item.add_marker(pytest.mark.skip(reason=reason))
        if level != KUBELET and item.get_closest_marker("todo"):
            item.add_marker(pytest.mark.xfail(reason="not yet", raises=(AssertionError, KeyError)))
        for mark in item.iter_markers("differs"):
            (row,) = mark.args
            assert any(cell.startswith(row) for cell in rows_of_the_page()), f"docs/compatibility.md has no row: {row}"
            if sandbox in mark.kwargs.get("at", _EMBEDDED):
                item.add_marker(pytest.mark.xfail(reason=f"documented: {row}", raises=AssertionError))


def pytest_collection_finish(session: pytest.Session) -> None:
    cases: dict[str, list[Case]] = {}
    for item in session.items:
        level = _level(item)
        if level is not None and isinstance(item, pytest.Function) and not any(item.iter_markers("skip")):
            arguments = {name: value for name, value in item.callspec.params.items() if name != "node"}
            cases.setdefault(level, []).append(Case(item.nodeid, item.obj, arguments))
    session.config.stash[_CASES] = cases


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """The case runs already, with others; its result is all that is asked for here."""
    runner = pyfuncitem.funcargs.get("node")
    if not isinstance(runner, CaseRunner):
        return None
    runner.result(pyfuncitem.nodeid)
    return True


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CaseRunner]:
    level = request.param
    cluster = _cluster(level, tmp_path_factory.mktemp(level))
    with CaseRunner(cluster, request.config.stash[_CASES][level], parallel=_PARALLEL) as runner:
        yield runner


def _cluster(level: str, directory: Path) -> AbstractAsyncContextManager[RunningNode]:
    if level == KUBELET:
        from tests.support.node.real_cluster import real_cluster  # needs root and the binaries of tools/build-node

        return real_cluster(directory)
    return embedded_node(level, directory)


def _level(item: pytest.Item) -> str | None:
    """The node of a case; None if the item is not one."""
    callspec = getattr(item, "callspec", None)
    return (
        None if callspec is None or not item.path.is_relative_to(Path(__file__).parent) else callspec.params.get("node")
    )
