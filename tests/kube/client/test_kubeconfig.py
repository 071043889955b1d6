"""Reading and writing kubeconfig files, in-cluster configuration, and the errors of both."""

import base64
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.kube.client.kubeconfig import (
    ClusterConfig,
    ConfigError,
    ExecPlugin,
    in_cluster_config,
    load_kubeconfig,
    merge_into_kubeconfig,
    remove_from_kubeconfig,
)

V1 = "client.authentication.k8s.io/v1"
AWS: Mapping[str, Any] = {"command": "aws", "apiVersion": V1, "interactiveMode": "Never"}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kubeconfig(
    path: Path,
    *,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
) -> Path:
    """A file with one context `main`, its cluster `c` and its user `u`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        **(top or {}),
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_current_context_is_read(tmp_path: Path) -> None:
    path = kubeconfig(
        tmp_path / "config", cluster={"certificate-authority-data": encoded(b"CA")}, user={"token": "secret"}
    )
    assert load_kubeconfig(path) == ClusterConfig(
        server="https://10.0.0.1:6443", context="main", ca_data=b"CA", token="secret"
    )


def test_a_context_can_be_named(tmp_path: Path) -> None:
    contexts = [
        {"name": "main", "context": {"cluster": "c"}},
        {"name": "other", "context": {"cluster": "c", "namespace": "train"}},
    ]
    config = load_kubeconfig(kubeconfig(tmp_path / "config", top={"contexts": contexts}), context="other")
    assert (config.context, config.namespace) == ("other", "train")


def test_secrets_do_not_show_when_a_config_is_printed(tmp_path: Path) -> None:
    user = {"token": "s3cret", "username": "ada", "password": "s3cret", "client-key-data": encoded(b"s3cret")}
    user["client-certificate-data"] = encoded(b"public")
    assert "s3cret" not in repr(load_kubeconfig(kubeconfig(tmp_path / "config", user=user)))


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_bytes(name.encode())
    user = {"client-certificate": "client.crt", "client-key": "./client.key", "tokenFile": "token"}
    config = load_kubeconfig(kubeconfig(tmp_path / "config", cluster={"certificate-authority": "ca.crt"}, user=user))
    assert config.ca_data == b"ca.crt"
    assert (config.client_certificate_data, config.client_key_data) == (b"client.crt", b"client.key")
    assert config.token_file == tmp_path / "token"


def test_data_wins_over_a_file(tmp_path: Path) -> None:
    cluster = {"certificate-authority-data": encoded(b"data"), "certificate-authority": "missing.crt"}
    assert load_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster)).ca_data == b"data"


def test_all_ways_to_reach_and_to_log_in_are_read(tmp_path: Path) -> None:
    cluster = {
        "insecure-skip-tls-verify": True,
        "tls-server-name": "api.example",
        "proxy-url": "http://proxy.example:3128",
        "server": "https://host/k8s/clusters/c-1/",
    }
    config = load_kubeconfig(
        kubeconfig(tmp_path / "config", cluster=cluster, user={"username": "ada", "password": "p"})
    )
    assert config == ClusterConfig(
        server="https://host/k8s/clusters/c-1",
        context="main",
        insecure=True,
        tls_server_name="api.example",
        proxy_url="http://proxy.example:3128",
        username="ada",
        password="p",
    )


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kubeconfig(tmp_path / "first", top={"contexts": [], "current-context": ""})
    second = kubeconfig(tmp_path / "second", cluster={"server": "https://other:1"}, user={"token": "x"})
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "missing"), str(first), str(second)]))
    config = load_kubeconfig()
    assert (config.context, config.server, config.token) == ("main", "https://10.0.0.1:6443", None)


def test_default_is_the_config_in_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no kubeconfig: .*\.kube/config does not exist; name a file with --kube"):
        load_kubeconfig()
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config")
    assert load_kubeconfig().server == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current-context": None}, r"no context: .*config has no current-context; .*--context \(main\)"),
        ({"current-context": "gone"}, r"current-context 'gone': no context 'gone' in .* \(existing: main\)"),
        ({"clusters": None}, r"current-context 'main': no cluster 'c' in .* \(existing: none\)"),
        ({"users": [{"name": "v", "user": {}}]}, r"no user 'u' in .* \(existing: v\)"),
        ({"contexts": [{"name": "main", "context": {}}]}, r"cluster of context 'main' in .* is missing"),
        ({"clusters": [{"name": "c", "cluster": {}}]}, r"server of cluster 'c' in .* is missing"),
        ({"clusters": "c"}, r"clusters in kubeconfig .* must be a list of named entries"),
        ({"clusters": ["c"]}, r"clusters in kubeconfig .* must be a list of named entries"),
        ({"users": [{"name": "u", "user": "ada"}]}, r"user 'u' in kubeconfig .* must be a mapping, not 'ada'"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_kubeconfig(kubeconfig(tmp_path / "config", top=change))


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        (
            {"server": "ftp://x"},
            {},
            r"server of cluster 'c' in .* must be of the form https://HOST:PORT, not 'ftp://x'",
        ),
        ({"server": 6443}, {}, r"server of cluster 'c' in .* must be a string, not 6443; put it in quotes"),
        ({"certificate-authority-data": "%%"}, {}, r"certificate-authority-data of cluster 'c' in .* is not base64"),
        ({"certificate-authority": "no.crt"}, {}, r"cannot read .*no\.crt: No such file or directory"),
        ({"insecure-skip-tls-verify": "yes"}, {}, r"insecure-skip-tls-verify of .* must be true or false, not 'yes'"),
        ({"proxy-url": "socks5://x:1"}, {}, r"proxy-url of cluster 'c' in .* must start with http://"),
        ({}, {"client-certificate-data": encoded(b"x")}, r"client-key of user 'u' in .* is missing"),
        ({}, {"client-key-data": encoded(b"x")}, r"client-certificate of user 'u' in .* is missing"),
        (
            {},
            {"auth-provider": {"name": "gcp"}},
            r"auth-provider of user 'u' in .* is not supported: use exec, a token",
        ),
        ({}, {"exec": "aws"}, r"exec of user 'u' in .* must be a mapping with a command, not 'aws'"),
        ({}, {"exec": {"apiVersion": V1}}, r"command of exec of user 'u' in .* is missing"),
        (
            {},
            {"exec": {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            r"apiVersion of exec of user 'u' in .* must be .*/v1 or .*/v1beta1, not '.*v1alpha1': update aws and",
        ),
        (
            {},
            {"exec": {"command": "aws", "apiVersion": V1}},
            r"interactiveMode of .* must be one of Never, .*, not None",
        ),
        (
            {},
            {"exec": {**AWS, "interactiveMode": "Maybe"}},
            r"interactiveMode of .* must be one of Never, .*, not 'Maybe'",
        ),
        (
            {},
            {"exec": {**AWS, "args": ["--n", 1]}},
            r"args of exec of user 'u' in .* must be a list of strings; put numbers",
        ),
        ({}, {"exec": {**AWS, "args": "x"}}, r"args of exec of user 'u' in .* must be a list of strings"),
        (
            {},
            {"exec": {**AWS, "env": [{"name": "A"}]}},
            r"env of exec of user 'u' in .* must be a list of entries with",
        ),
        ({}, {"exec": {**AWS, "provideClusterInfo": 1}}, r"provideClusterInfo of .* must be true or false, not 1"),
    ],
)
def test_invalid_values_name_the_field_and_the_fix(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        load_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster, user=user))
    assert "\n" not in str(refused.value)


def test_exec_plugin_is_read(tmp_path: Path) -> None:
    full = {
        **AWS,
        "args": ["eks", "get-token"],
        "env": [{"name": "AWS_PROFILE", "value": "ada"}],
        "installHint": "install aws",
        "provideClusterInfo": True,
    }
    cluster = {
        "server": "https://h:1",
        "certificate-authority-data": encoded(b"ca"),
        "tls-server-name": "real",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}, {"name": "x"}],
    }
    path = kubeconfig(tmp_path / "config", cluster=cluster, user={"exec": full})
    assert load_kubeconfig(path).exec_plugin == ExecPlugin(
        where=f"exec of user 'u' in {path}",
        command="aws",
        api_version=V1,
        args=("eks", "get-token"),
        env=(("AWS_PROFILE", "ada"),),
        interactive_mode="Never",
        install_hint="install aws",
        cluster={
            "server": "https://h:1",
            "certificate-authority-data": encoded(b"ca"),
            "tls-server-name": "real",
            "config": {"audience": "a"},
        },
    )


def test_path_of_a_plugin_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    beta = {"command": "./bin/login", "apiVersion": "client.authentication.k8s.io/v1beta1"}
    plugin = load_kubeconfig(kubeconfig(tmp_path / "config", user={"exec": beta})).exec_plugin
    assert plugin
    assert (plugin.command, plugin.interactive_mode, plugin.cluster) == (f"{tmp_path}/bin/login", "IfAvailable", None)


@pytest.mark.parametrize("written", [{"token": "t"}, {"tokenFile": "t"}, {"username": "ada", "password": "pw"}])
def test_static_credentials_take_precedence_over_a_plugin(tmp_path: Path, written: dict[str, str]) -> None:
    path = kubeconfig(tmp_path / "config", user={"exec": dict(AWS), **written})
    assert load_kubeconfig(path).exec_plugin is None


def test_a_server_without_a_scheme_is_plain_http(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", cluster={"server": "localhost:8080"})
    assert load_kubeconfig(path).server == "http://localhost:8080"


def test_an_unknown_context_names_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"context 'x': no context 'x' in .* \(existing: main\)"):
        load_kubeconfig(kubeconfig(tmp_path / "config"), context="x")


@pytest.mark.parametrize("text", ["a: [", "\tx", "{"])
def test_broken_yaml_is_one_line_with_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"kubeconfig .*config is not YAML: .*line 1") as refused:
        load_kubeconfig(path)
    assert "\n" not in str(refused.value)


def test_a_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("- a\n")
    with pytest.raises(ConfigError, match="must be a mapping with clusters, users and contexts"):
        load_kubeconfig(tmp_path / "config")


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the kubeconfig: cannot read .*gone: No such file or directory"):
        load_kubeconfig(tmp_path / "gone")


def plain(text: str) -> Any:
    """The document with every value as the text that stands there."""
    return yaml.load(text, yaml.BaseLoader)  # noqa: S506 (it knows strings, lists and mappings only)


class TestInsideAPod:
    @pytest.fixture
    def account(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        (tmp_path / "token").write_text("t")
        (tmp_path / "ca.crt").write_bytes(b"CA")
        (tmp_path / "namespace").write_text("train\n")
        return tmp_path

    def test_the_service_account_is_used(self, account: Path) -> None:
        config = in_cluster_config(account)
        assert (config.server, config.namespace, config.ca_data) == ("https://10.96.0.1:443", "train", b"CA")
        assert config.token_file == account / "token"

    def test_an_ipv6_host_gets_brackets(self, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        assert in_cluster_config(account).server == "https://[fd00::1]:443"

    def test_a_missing_token_names_the_likely_cause(self, account: Path) -> None:
        (account / "token").unlink()
        with pytest.raises(ConfigError, match="automountServiceAccountToken"):
            in_cluster_config(account)

    def test_outside_a_pod_the_error_names_the_variables(self, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
        with pytest.raises(ConfigError, match=r"not inside a cluster: .* give a kubeconfig"):
            in_cluster_config(account)


class TestMerging:
    def merge(self, path: Path, name: str = "trainwright", server: str = "https://127.0.0.1:1") -> None:
        merge_into_kubeconfig(path, name=name, server=server, ca_data=b"CA", token="t")

    def test_a_new_file_is_private_and_works(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "config"
        self.merge(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert load_kubeconfig(path) == ClusterConfig(
            server="https://127.0.0.1:1", context="trainwright", ca_data=b"CA", token="t"
        )

    def test_everything_else_in_the_file_stays(self, tmp_path: Path) -> None:
        extra = {"preferences": {"colors": True}, "extensions": [{"name": "x", "expiry": "2026-11-15T04:05:06Z"}]}
        path = kubeconfig(tmp_path / "config", user={"exec": {"command": "aws"}}, top=extra)
        text = path.read_text().replace("'2026-11-15T04:05:06Z'", "2026-11-15T04:05:06Z")
        path.write_text(text)
        self.merge(path)
        remove_from_kubeconfig(path, name="trainwright")
        assert plain(path.read_text()) == plain(text)

    def test_a_current_context_that_is_set_is_never_changed(self, tmp_path: Path) -> None:
        path = kubeconfig(tmp_path / "config")
        self.merge(path)
        assert yaml.safe_load(path.read_text())["current-context"] == "main"
        assert load_kubeconfig(path, context="trainwright").token == "t"

    def test_merging_again_replaces(self, tmp_path: Path) -> None:
        path = tmp_path / "config"
        self.merge(path)
        self.merge(path, server="https://127.0.0.1:2")
        assert load_kubeconfig(path).server == "https://127.0.0.1:2"
        assert [len(yaml.safe_load(path.read_text())[s]) for s in ("clusters", "users", "contexts")] == [1, 1, 1]

    def test_remove_undoes_merge(self, tmp_path: Path) -> None:
        path = tmp_path / "config"
        self.merge(path, name="one")
        self.merge(path, name="two")
        remove_from_kubeconfig(path, name="one")
        document = yaml.safe_load(path.read_text())
        assert [entry["name"] for entry in document["contexts"]] == ["two"]
        assert document["current-context"] == ""

    def test_removing_from_no_file_does_nothing(self, tmp_path: Path) -> None:
        remove_from_kubeconfig(tmp_path / "config", name="one")
        assert not (tmp_path / "config").exists()

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        real = kubeconfig(tmp_path / "real")
        link = tmp_path / "link"
        link.symlink_to(real)
        self.merge(link)
        assert link.is_symlink()
        assert load_kubeconfig(real, context="trainwright").token == "t"

    def test_a_broken_file_is_left_as_it_is(self, tmp_path: Path) -> None:
        path = tmp_path / "config"
        path.write_text("a: [")
        with pytest.raises(ConfigError, match="is not YAML"):
            self.merge(path)
        assert path.read_text() == "a: ["
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_kubeconfig_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its plugins would run as this user, for example with `sudo` and the other one's HOME."""
    path = tmp_path / "config"
    merge_into_kubeconfig(path, name="x", server="https://127.0.0.1:1", ca_data=b"", token="t")
    os.chown(path, 46_666, -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load_kubeconfig(path, context="x")
