"""Which files a volume has, with which content and mode."""

import base64
import posixpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.referenced_objects import (
    PodConfigError,
    ReferencedObjects,
    References,
    TokenSource,
    all_references,
    file_references,
)
from trainwright.cluster.node.volumes.files import FileContext, UnsupportedVolumeError, files_of_volume
from trainwright.objects import Object

POD: Object = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "digits"}},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Mi"}}}]},
}
OBJECTS = ReferencedObjects(
    config_maps={"c": {"data": {"k": "v"}, "binaryData": {"bin": base64.b64encode(b"\xff").decode()}}},
    secrets={"s": {"data": {"password": base64.b64encode(b"hush").decode()}}},
    tokens={TokenSource("vault", 600): "vault-token", TokenSource("", 3607): "api-token"},
)


def files(kind: str, spec: Object) -> dict[str, tuple[bytes, int]]:
    found = files_of_volume(kind, spec, FileContext(pod=POD, objects=OBJECTS))
    return {path: (file.content, file.mode) for path, file in found.items()}


def test_every_key_is_a_file_and_items_choose_name_and_mode() -> None:
    assert files("configMap", {"name": "c"}) == {"k": (b"v", 0o644), "bin": (b"\xff", 0o644)}
    items = [{"key": "password", "path": "deep/pw", "mode": 0}]
    assert files("secret", {"secretName": "s", "items": items, "defaultMode": 0o400}) == {"deep/pw": (b"hush", 0)}


def test_the_downward_api_has_fields_and_resources() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}, "mode": 0o600},
    ]
    found = files("downwardAPI", {"items": items})
    assert found == {"labels": (b'app="digits"', 0o644), "memory": (b"67108864", 0o600)}


def test_a_projected_volume_joins_its_sources() -> None:
    """As ServiceAccount admission writes it."""
    sources: list[Object] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"secret": {"name": "s", "items": [{"key": "password", "path": "pw", "mode": 0o400}]}},
        {"secret": {"name": "absent", "optional": True}},
        {"serviceAccountToken": {"audience": "vault", "expirationSeconds": 600, "path": "vault/token"}},
    ]
    assert files("projected", {"sources": sources, "defaultMode": 0o440}) == {
        "token": (b"api-token", 0o440),
        "ca.crt": (b"v", 0o440),
        "namespace": (b"default", 0o440),
        "pw": (b"hush", 0o400),
        "vault/token": (b"vault-token", 0o440),
    }


def test_a_missing_token_is_an_error() -> None:
    with pytest.raises(PodConfigError, match="failed to fetch token"):
        files("projected", {"sources": [{"serviceAccountToken": {"path": "token"}}]})


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "..", "."])
@pytest.mark.parametrize("kind", ["configMap", "downwardAPI", "projected"])
def test_no_file_is_outside_of_its_volume(kind: str, path: str) -> None:
    field = {"fieldPath": "metadata.name"}
    token = {"path": path, "audience": "vault", "expirationSeconds": 600}
    spec: dict[str, Any] = {
        "configMap": {"name": "c", "items": [{"key": "k", "path": path}]},
        "downwardAPI": {"items": [{"path": path, "fieldRef": field}]},
        "projected": {"sources": [{"serviceAccountToken": token}]},
    }
    with pytest.raises(UnsupportedVolumeError, match="leads out of the volume"):
        files(kind, spec[kind])


@given(st.lists(st.sampled_from(["..", ".", "a", "b", "..c", "", "c.."]), min_size=1, max_size=6).map("/".join))
def test_a_path_that_is_accepted_stays_inside(path: str) -> None:
    try:
        found = files("configMap", {"name": "c", "items": [{"key": "k", "path": path}]})
    except UnsupportedVolumeError:
        return
    (inside,) = found
    assert posixpath.normpath(posixpath.join("/volume", inside)).startswith("/volume/")
    assert not inside.startswith("..")


def test_the_objects_of_files_and_variables_are_found() -> None:
    sources: list[Object] = [
        {"configMap": {"name": "projected"}},
        {"secret": {"name": "hidden"}},
        {"serviceAccountToken": {"path": "token", "audience": "a"}},
    ]
    volumes: list[Object] = [
        {"name": "a", "configMap": {"name": "files"}},
        {"name": "b", "projected": {"sources": sources}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "variables", "key": "k"}}}]
    pod = {"spec": {"containers": [{"name": "main", "env": env}], "volumes": volumes}}
    tokens = frozenset({TokenSource("a", 3600)})
    files, hidden = frozenset({"files", "projected"}), frozenset({"hidden"})
    assert file_references(pod) == References(files, hidden, frozenset(), tokens)
    assert all_references(pod) == References(files | {"variables"}, hidden, frozenset({"claim"}), tokens)
