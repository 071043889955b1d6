import base64
import json
from pathlib import Path

import pytest

from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.credentials import Credential, CredentialsError, DockerConfig


def auth(username: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{username}:{password}".encode()).decode()}


def lookup(document: object, image: str) -> list[Credential]:
    return DockerConfig.of_pull_secret(json.dumps(document).encode()).lookup(ImageReference.parse(image))


def user_config(directory: Path, document: object) -> DockerConfig:
    (directory / "config.json").write_text(json.dumps(document))
    return DockerConfig.of_user({"DOCKER_CONFIG": str(directory)})


def helper(directory: Path, name: str, script: str) -> None:
    program = directory / f"docker-credential-{name}"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("key", "image"),
    [
        ("https://index.docker.io/v1/", "python"),
        ("docker.io", "team/app"),
        ("registry.example.com", "registry.example.com/app"),
        ("https://registry.example.com/v2/", "registry.example.com/app"),
        ("registry.example.com:5000/team", "registry.example.com:5000/team/app"),
        ("*.example.com", "registry.example.com/app"),
    ],
)
def test_entry_is_found_under_the_names_that_docker_and_kubernetes_use(key: str, image: str) -> None:
    assert lookup({"auths": {key: auth("alice", "a:b")}}, image) == [Credential("alice", "a:b")]


@pytest.mark.parametrize(
    ("key", "image"),
    [
        ("registry.example.com", "registry.example.com:5000/app"),
        ("registry.example.com/team", "registry.example.com/teams/app"),
        ("*.com", "registry.example.com/app"),
        ("quay.io", "python"),
    ],
)
def test_entry_of_another_registry_is_not_used(key: str, image: str) -> None:
    assert lookup({"auths": {key: auth("alice", "secret")}}, image) == []


def test_entry_of_a_part_of_the_registry_comes_first() -> None:
    found = lookup({"auths": {"quay.io": auth("all", "1"), "quay.io/team": auth("team", "2")}}, "quay.io/team/app")

    assert [credential.username for credential in found] == ["team", "all"]


def test_older_format_of_pull_secrets_is_read() -> None:
    assert lookup({"quay.io": {"username": "alice", "password": "secret"}}, "quay.io/app") == [
        Credential("alice", "secret")
    ]


@pytest.mark.parametrize("entry", [None, [], {}, {"auth": "%%%"}, {"auth": "/w=="}, {"auth": 3}])
def test_broken_entry_is_ignored(entry: object) -> None:
    assert lookup({"auths": {"quay.io": entry}}, "quay.io/app") == []


def test_pull_secret_starts_no_helper() -> None:
    assert lookup({"auths": {}, "credsStore": "evil", "credHelpers": {"quay.io": "evil"}}, "quay.io/app") == []


def test_helper_of_the_registry_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    helper(tmp_path, "mine", """read server; echo "{\\"Username\\": \\"$1\\", \\"Secret\\": \\"$server\\"}" """)
    config = user_config(tmp_path, {"credHelpers": {"quay.io": "mine"}})

    assert config.lookup(ImageReference.parse("quay.io/app")) == [Credential("get", "quay.io")]


def test_helper_without_the_registry_falls_back_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    helper(tmp_path, "mine", "echo credentials not found in native keychain; exit 1")
    config = user_config(tmp_path, {"credsStore": "mine", "auths": {"quay.io": auth("alice", "secret")}})

    assert config.lookup(ImageReference.parse("quay.io/app")) == [Credential("alice", "secret")]


def test_helper_that_returns_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    helper(tmp_path, "mine", """echo '{"Username": "<token>", "Secret": "abc"}'""")
    config = user_config(tmp_path, {"credsStore": "mine"})

    assert config.lookup(ImageReference.parse("quay.io/app")) == [Credential("", identity_token="abc")]


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"credsStore": "absent"}, "docker-credential-absent, which Docker's config.json names, is not on the PATH"),
        ({"credsStore": "../evil"}, "names a credential helper '../evil'"),
        ({"credsStore": "broken"}, "docker-credential-broken get failed: locked"),
        ({"credsStore": "silent"}, "docker-credential-silent answered something else than credentials"),
    ],
)
def test_helper_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, str], complaint: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    helper(tmp_path, "broken", "echo locked >&2; exit 1")
    helper(tmp_path, "silent", "true")
    config = user_config(tmp_path, document)

    with pytest.raises(CredentialsError, match=complaint):
        config.lookup(ImageReference.parse("quay.io/app"))


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_bytes(content.encode(errors="surrogateescape"))

    with pytest.raises(CredentialsError, match=r"cannot read .*config\.json"):
        DockerConfig.of_user({"DOCKER_CONFIG": str(tmp_path)})


def test_login_keeps_what_the_file_has_and_hides_it_from_others(tmp_path: Path) -> None:
    config = user_config(tmp_path, {"auths": {"quay.io": auth("a", "b")}, "detachKeys": "ctrl-e,e"})

    config.set("docker.io", Credential("alice", "secret"))
    written = json.loads((tmp_path / "config.json").read_text())

    assert written == {
        "auths": {"quay.io": auth("a", "b"), "https://index.docker.io/v1/": auth("alice", "secret")},
        "detachKeys": "ctrl-e,e",
    }
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o600
    assert config.remove("docker.io")
    assert not config.remove("docker.io")
    assert list(json.loads((tmp_path / "config.json").read_text())["auths"]) == ["quay.io"]


def test_login_without_a_file_creates_it(tmp_path: Path) -> None:
    config = DockerConfig.of_user({"DOCKER_CONFIG": str(tmp_path / "new")})

    config.set("quay.io", Credential("alice", "secret"))

    again = DockerConfig.of_user({"DOCKER_CONFIG": str(tmp_path / "new")})
    assert again.lookup(ImageReference.parse("quay.io/app")) == [Credential("alice", "secret")]
