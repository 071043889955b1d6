"""From the flags of `trainwright operator` to its options, and the page that explains them."""

import re
from pathlib import Path
from typing import Any

import pytest

from trainwright.cli.commands.operator_flags import command, ignored_flags, options_from, read_template
from trainwright.engine.settings import InitContainer, Settings
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions

ROOT = Path(__file__).parents[3]


def flags(*words: str) -> dict[str, Any]:
    return command.make_context("operator", list(words)).params


def options(*words: str) -> OperatorOptions:
    return options_from(flags(*words))


@pytest.fixture(autouse=True)
def _no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBEFLOW_NAMESPACE", raising=False)


def test_without_flags_the_options_are_those_of_upstream() -> None:
    assert options() == OperatorOptions(
        metrics_bind_address=":8080", health_probe_bind_address=":8081", webhooks=WebhookOptions()
    )


def test_the_arguments_of_an_upstream_deployment_are_accepted() -> None:
    given = options(
        "--leader-elect=true",
        "-zap-log-level=2",
        "--kube-api-qps=1000",
        "--kube-api-burst",
        "1500",
        "--controller-threads=10",
        "--gang-scheduler-name=volcano",
        "--enable-scheme=PyTorchJob",
        "-enable-scheme",
        "tfjob",
        "--namespace=team",
        "--pytorch-init-container-image=example.com/busybox:1",
        "--pytorch-init-container-max-tries=7",
        "--webhook-server-port=9444",
        "--webhook-service-name=svc",
        "--webhook-secret-name=certs",
        "--health-probe-bind-address=:9081",
        "--metrics-bind-address=0",
    )
    assert given == OperatorOptions(
        namespace="team",
        controller_threads=10,
        kube_api_qps=1000,
        kube_api_burst=1500,
        enable_scheme=("PyTorchJob", "tfjob"),
        metrics_bind_address="0",
        health_probe_bind_address=":9081",
        leader_election=LeaderElectionOptions(),
        webhooks=WebhookOptions(port=9444, service="svc", secret="certs"),
        settings=Settings(
            gang=GangScheduler("volcano"), init_container=InitContainer(image="example.com/busybox:1", max_tries=7)
        ),
    )


def test_our_own_flags_reach_their_settings() -> None:
    given = options(
        "--whole-group-restart",
        "--dead-node-seconds=60",
        "--pytorch-init-container-wait-for-port",
        "--webhook-server-port=0",
        "--leader-elect",
        "--leader-election-id=lock",
        "--leader-election-namespace=ns",
        "--leader-election-lease-duration=1m",
        "--leader-election-renew-deadline=40s",
        "--leader-election-retry-period=5",
    )
    assert given.settings == Settings(
        group_restart=True, dead_node_seconds=60, init_container=InitContainer(wait_for_port=True)
    )
    assert given.webhooks is None
    assert given.leader_election == LeaderElectionOptions(
        name="lock", namespace="ns", lease_seconds=60, renew_seconds=40, retry_seconds=5
    )


def test_an_empty_image_disables_the_init_container() -> None:
    assert options("--pytorch-init-container-image=").settings.init_container is None


@pytest.mark.parametrize("qps", ["0", "-1"])
def test_a_rate_that_is_not_above_zero_means_no_limit(qps: str) -> None:
    assert options(f"--kube-api-qps={qps}").kube_api_qps is None


def test_the_namespace_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team")
    assert options().namespace == "team"
    assert options("--namespace=other").namespace == "other"


def test_flags_without_effect_are_named() -> None:
    assert ignored_flags(flags()) == []
    assert ignored_flags(flags("--zap-stacktrace-level=error")) == ["--zap-stacktrace-level"]


def test_a_template_is_read_from_the_given_file_or_from_upstreams_path(tmp_path: Path) -> None:
    text = "- {name: wait, image: '{{.InitContainerImage}}'}\n"
    path = tmp_path / "initContainer.yaml"
    assert read_template(None, default=path) is None
    path.write_text(text)
    for found in (read_template(None, default=path), read_template(path)):
        assert found is not None
        assert found.text == text


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\xff", "is not UTF-8 text"), (b"name: x", "must be a YAML list")]
)
def test_a_template_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "template.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OperatorError, match=f"--pytorch-init-container-template-file: .*{reason}"):
        read_template(path)


def test_every_flag_is_explained_with_its_default() -> None:
    page = (ROOT / "docs" / "reference" / "operator-flags.md").read_text()
    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \|([^|]*)\|", page, flags=re.MULTILINE))
    known = {option.opts[-1]: option for option in command.params if option.opts[-1] not in {"--help", "--verbose"}}
    assert rows.keys() == known.keys()
    defaults = {f"--{name.replace('_', '-')}": value for name, value in flags().items()}
    for flag in known:
        # The page describes flags that are off or have no default in words, and shows durations as they are written.
        if defaults[flag] and not isinstance(defaults[flag], float):
            assert f"`{defaults[flag]}`" in rows[flag], flag
        if isinstance(defaults[flag], float) and defaults[flag]:
            assert f"`{defaults[flag]:g}s`" in rows[flag], flag
