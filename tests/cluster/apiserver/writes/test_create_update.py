"""Objects with one wrong value are stored or rejected with a StatusError; no other exception is raised."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.widgets import definition, widget
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.http.responses import Representation, table
from trainwright.cluster.apiserver.resources.crds import types_of
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.writes.create_update import decode_object, new_object, updated_object
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager
from trainwright.objects import Object

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MANAGER = FieldManager("tester", NOW)
REGISTRY = Registry()

OWNER = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}
OBJECTS: dict[str, Object] = {
    "pods": {
        "metadata": {"name": "p", "labels": {"a": "b"}, "ownerReferences": [OWNER]},
        "spec": {
            "initContainers": [{"name": "i", "image": "x"}],
            "containers": [
                {
                    "name": "c",
                    "image": "x:1",
                    "ports": [{"containerPort": 80}],
                    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    "resources": {"limits": {"cpu": 1}, "requests": {"cpu": "500m"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "readinessProbe": {"exec": {"command": ["true"]}},
                }
            ],
            "volumes": [{"name": "v", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "y"}}]}}],
            "tolerations": [{"key": "k"}],
        },
    },
    "jobs": {
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}},
    },
    "services": {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "name": "a"}], "selector": {"a": "b"}}},
    "secrets": {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}},
    "configmaps": {"metadata": {"name": "c"}, "data": {"a": "b"}, "binaryData": {"c": "ZA=="}},
    "events": {
        "metadata": {"name": "e"},
        "involvedObject": {"name": "p", "namespace": "ns"},
        "source": {"component": "x"},
        "count": 2,
    },
    "persistentvolumeclaims": {
        "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "persistentvolumes": {
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}},
    },
    "roles": {"metadata": {"name": "r"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    "clusterrolebindings": {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}, {"kind": "User", "name": "u"}],
    },
    "nodes": {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
    "namespaces": {"metadata": {"name": "n"}},
    "customresourcedefinitions": definition(),
    "widgets": widget(
        parts=[{"id": "1"}],
        tags=["a"],
        labels={"x": {"a": 1}},
        either={"a": "x"},
        embedded={"apiVersion": "v1", "kind": "X"},
    ),
}

any_value: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=5) | st.just([]) | st.just({})
)
any_value |= st.lists(any_value, max_size=2) | st.dictionaries(st.text(max_size=5), any_value, max_size=2)


def resource_type(plural: str) -> ResourceType:
    if plural == "widgets":
        crd = definition(rules=True)
        crd["spec"]["names"] |= {"singular": "widget", "listKind": "WidgetList"}
        return types_of(crd)[0]
    return next(kind for kind in REGISTRY.types() if kind.resource.plural == plural)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path below the root of a document."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        found += paths(part, (*path, key))
    return found


def with_value(obj: Object, path: tuple[Any, ...], value: Any) -> Object:
    changed: Any = copy.deepcopy(obj)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    assert isinstance(changed, dict)
    return changed


def created(kind: ResourceType, obj: Object) -> Object:
    namespace = "ns" if kind.resource.namespaced else ""
    return new_object(kind, decode_object(kind, copy.deepcopy(obj)), namespace=namespace, uid="u", manager=MANAGER)


@pytest.mark.parametrize("plural", OBJECTS)
@given(data=st.data())
def test_object_with_one_wrong_value_is_stored_or_rejected(plural: str, data: st.DataObject) -> None:
    kind = resource_type(plural)
    good = OBJECTS[plural]
    bad = with_value(good, data.draw(st.sampled_from(paths(good))), data.draw(any_value))
    try:
        stored = created(kind, bad)
    except StatusError as failure:
        outcome = failure.code
    else:
        outcome = 201
        assert table(kind, [stored], Representation("Table"), NOW, {})["rows"][0]["cells"]
        stored["metadata"]["resourceVersion"] = "1"
        again = updated_object(kind, decode_object(kind, copy.deepcopy(stored)), stored, MANAGER)
        assert again is stored
    assert outcome in {201, 400, 422}


@pytest.mark.parametrize("plural", OBJECTS)
def test_sample_objects_are_valid(plural: str) -> None:
    kind = resource_type(plural)
    decoded = decode_object(kind, copy.deepcopy(OBJECTS[plural]))
    assert decoded.findings.unknown == []
    assert created(kind, OBJECTS[plural])["metadata"]["uid"] == "u"


def test_custom_resource_is_updated_with_its_version_alone() -> None:
    kind = resource_type("widgets")
    stored = created(kind, OBJECTS["widgets"])
    stored["metadata"]["resourceVersion"] = "1"
    changed = with_value(stored, ("spec", "color"), "blue")
    del changed["metadata"]["resourceVersion"]

    with pytest.raises(StatusError) as raised:
        updated_object(kind, decode_object(kind, copy.deepcopy(changed)), stored, MANAGER)

    missing = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    assert (raised.value.code, raised.value.message) == (422, f'widgets.example.com "w" is invalid: {missing}')
    patched = updated_object(kind, decode_object(kind, changed), stored, MANAGER, patch=True)
    assert (patched["spec"]["color"], patched["metadata"]["generation"]) == ("blue", 2)
