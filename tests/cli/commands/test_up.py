"""What `up` decides and says before and after the cluster itself: where contexts go, what counts as the same."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.cli.commands.up import Wishes, banner, differences, stopped, user_kubeconfig
from trainwright.cli.main import cli
from trainwright.cluster.datadir import ClusterRecord, DataDir

RECORD = ClusterRecord(
    pid=1,
    start_ticks=1,
    boot_id="boot",
    server="https://127.0.0.1:26443",
    version="0.1.0",
    sandbox="overlay",
    python="/env/bin/python",
    kubeconfig="/home/me/.kube/config",
)


def wishes(
    *, kubeconfig: Path | None = None, port: int | None = None, python: Path | None = None, sandbox: str | None = None
) -> Wishes:
    return Wishes(kubeconfig, port, python, sandbox)


def test_nothing_asked_for_is_the_same() -> None:
    assert differences(RECORD, wishes()) == []


def test_the_same_settings_are_the_same() -> None:
    asked = wishes(
        port=26443, sandbox="overlay", python=Path("/env/bin/python"), kubeconfig=Path("/home/me/.kube/config")
    )
    assert differences(RECORD, asked) == []


@pytest.mark.parametrize(
    ("asked", "difference"),
    [
        (wishes(port=1234), "--port 26443, not 1234"),
        (wishes(sandbox="plain"), "--sandbox overlay, not plain"),
        (wishes(python=Path("/usr/bin/python3")), "--python /env/bin/python, not /usr/bin/python3"),
        (wishes(kubeconfig=Path("/tmp/config")), "--kubeconfig /home/me/.kube/config, not /tmp/config"),
    ],
)
def test_other_settings_are_named(asked: Wishes, difference: str) -> None:
    assert differences(RECORD, asked) == [difference]


def test_the_context_goes_where_kubectl_would_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_kubeconfig(None, {}) == Path("/home/me/.kube/config")
    assert user_kubeconfig(None, {"KUBECONFIG": ":/first:/second"}) == Path("/first")
    assert user_kubeconfig(Path("/asked"), {"KUBECONFIG": "/first"}) == Path("/asked")


def test_the_banner_names_everything_and_what_next() -> None:
    text = "\n".join(banner(RECORD, DataDir(Path("/data")), detached=True))
    for part in ("https://127.0.0.1:26443", "overlay", "/env/bin/python", "/data", "/home/me/.kube/config"):
        assert part in text
    assert "trainwright run --data-dir /data pytorchjob.yaml" in text
    assert "trainwright down --data-dir /data" in text


def test_the_default_directory_needs_no_flag() -> None:
    text = "\n".join(banner(RECORD, DataDir.default(), detached=False))
    assert "--data-dir" not in text
    assert "Ctrl-C; pods keep running" in text


@pytest.mark.parametrize(
    ("pods", "words"), [(0, "no pods are running"), (1, "1 pod keeps running"), (3, "3 pods keep running")]
)
def test_stopping_says_what_goes_on(pods: int, words: str) -> None:
    assert words in stopped(pods)


def test_elsewhere_than_on_linux_one_line_says_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    result = CliRunner().invoke(cli, ["up"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: the embedded cluster needs Linux, this is darwin")
    assert "--context" in result.output
    assert result.output.count("\n") == 1
