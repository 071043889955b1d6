"""Input, output and errors of credential plugins."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.client import exec_plugin
from trainwright.kube.client.exec_plugin import ExecCredential, exec_info, may_interact, read_credential, run
from trainwright.kube.client.kubeconfig import ConfigError, ExecPlugin

V1 = "client.authentication.k8s.io/v1"
PLUGIN = ExecPlugin(where="exec of user 'u' in config", command="login", api_version=V1, interactive_mode="Never")


def answer(**status: Any) -> bytes:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}).encode()


def program(directory: Path, script: str) -> ExecPlugin:
    path = directory / "login"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return replace(PLUGIN, command=str(path))


def test_token_with_expiration() -> None:
    assert read_credential(PLUGIN, answer(token="t", expirationTimestamp="2026-11-15T04:05:06Z")) == ExecCredential(
        token="t", expires=datetime(2026, 11, 15, 4, 5, 6, tzinfo=UTC)
    )


def test_a_certificate_with_its_key() -> None:
    assert read_credential(PLUGIN, answer(clientCertificateData="c", clientKeyData="k")) == ExecCredential(
        certificate=b"c", key=b"k"
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"", "the output of login is not JSON"),
        (b"\xff", "the output of login is not JSON"),
        (b"[]", "the output of login is not an ExecCredential"),
        (b'{"kind": "Status"}', "the output of login is not an ExecCredential"),
        (
            b'{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1"}',
            f"login returned 'client.authentication.k8s.io/v1beta1', the kubeconfig says {V1}",
        ),
        (json.dumps({"kind": "ExecCredential", "apiVersion": V1}).encode(), "the output of login has no status"),
        (answer(), "login returned neither token nor clientCertificateData"),
        (answer(token=""), "login returned neither token nor clientCertificateData"),
        (answer(token=7), "token in the output of login must be a string"),
        (answer(clientKeyData="k"), "login returned only one of clientCertificateData and clientKeyData"),
        (
            answer(token="t", expirationTimestamp="soon"),
            "expirationTimestamp in the output of login is not a time: 'soon'",
        ),
    ],
)
def test_invalid_outputs_are_named(output: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_credential(PLUGIN, output)
    assert str(refused.value) == f"exec of user 'u' in config: {message}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    | st.builds(
        lambda status: {"apiVersion": V1, "kind": "ExecCredential", "status": status},
        st.dictionaries(
            st.sampled_from(["token", "expirationTimestamp", "clientKeyData", "clientCertificateData"]),
            st.none() | st.text() | st.integers(),
        ),
    )
)
def test_any_output_is_a_credential_or_a_one_line_error(said: Any) -> None:
    try:
        credential = read_credential(PLUGIN, json.dumps(said).encode())
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either outcome is good)
    else:
        assert credential.token or credential.certificate


@pytest.mark.parametrize(
    ("mode", "terminal", "interactive"),
    [
        ("Never", True, False),
        ("Never", False, False),
        ("IfAvailable", True, True),
        ("IfAvailable", False, False),
        ("Always", True, True),
    ],
)
def test_interactive_mode(mode: str, terminal: bool, interactive: bool) -> None:
    assert may_interact(replace(PLUGIN, interactive_mode=mode), terminal=terminal) is interactive


def test_interactive_plugin_needs_a_terminal() -> None:
    with pytest.raises(ConfigError, match=r"login is interactive \(interactiveMode Always\): run in a terminal"):
        may_interact(replace(PLUGIN, interactive_mode="Always"), terminal=False)


def test_exec_info_contains_the_cluster_on_request() -> None:
    assert json.loads(exec_info(PLUGIN, interactive=True)) == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {"interactive": True},
    }
    asked = json.loads(exec_info(replace(PLUGIN, cluster={"server": "https://h"}), interactive=False))
    assert asked["spec"] == {"interactive": False, "cluster": {"server": "https://h"}}


def test_the_program_gets_its_arguments_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_TOWN", "here")
    script = """printf '%s|%s|%s|%s' "$1" "$PROFILE" "$HOME_TOWN" "$KUBERNETES_EXEC_INFO" > "$0.saw"; """
    script += f"echo '{answer(token='t').decode()}'"
    plugin = replace(program(tmp_path, script), args=("get-token",), env=(("PROFILE", "ada"),))
    assert run(plugin).token == "t"
    argument, profile, town, info = (tmp_path / "login.saw").read_text().split("|")
    assert (argument, profile, town) == ("get-token", "ada", "here")
    assert json.loads(info) == json.loads(exec_info(plugin, interactive=False))


def test_missing_plugin_is_named_with_its_install_hint() -> None:
    missing = replace(PLUGIN, command="/nowhere/login", install_hint="Install it\nwith: get login")
    with pytest.raises(ConfigError) as refused:
        run(missing)
    assert str(refused.value) == (
        "exec of user 'u' in config: cannot run /nowhere/login: No such file or directory (Install it with: get login)"
    )


def test_error_of_a_plugin_is_quoted(tmp_path: Path) -> None:
    plugin = program(tmp_path, "echo first >&2; echo 'session expired: log in' >&2; echo >&2; exit 3")
    with pytest.raises(ConfigError, match=r"/login exited with code 3: session expired: log in$"):
        run(plugin)
    with pytest.raises(ConfigError, match=r"/login exited with code 4$"):
        run(program(tmp_path, "exit 4"))


def test_plugin_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(ConfigError, match=r"/login did not respond within 0\.1 s"):
        run(program(tmp_path, "exec sleep 60"))
