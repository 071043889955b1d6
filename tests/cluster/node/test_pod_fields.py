"""The downward API by the kubelet's rules."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.pod_fields import NodeFields, field_value, format_map, quote, resource_value
from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.objects import Object

NODE = NodeFields(
    values={"spec.nodeName": "local", "status.podIP": "127.64.0.7", "status.hostIP": "127.0.0.1"},
    allocatable={"cpu": Fraction(4), "memory": Fraction(8 << 30), "ephemeral-storage": Fraction(1 << 40)},
)
LIMITED: Object = {
    "name": "main",
    "resources": {"limits": {"cpu": "1500m", "memory": "1.5Gi"}, "requests": {"cpu": "250m"}},
}
POD: Object = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"b": "2", "a": "1"},
        "annotations": {"note": 'say "hi"\n', "a/b['c']": "odd"},
    },
    "spec": {"containers": [LIMITED, {"name": "free"}], "serviceAccountName": "trainer"},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels", 'a="1"\nb="2"'),
        ("metadata.annotations", 'a/b[\'c\']="odd"\nnote="say \\"hi\\"\\n"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations['note']", 'say "hi"\n'),
        ("metadata.annotations['a/b['c']']", "odd"),
        ("spec.serviceAccountName", "trainer"),
        ("spec.nodeName", "local"),
        ("status.podIP", "127.64.0.7"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_a_field_has_the_value_that_the_kubelet_gives_it(path: str, value: str) -> None:
    assert field_value(POD, path, NODE) == value


@pytest.mark.parametrize("path", ["", "metadata", "metadata.labels[a]", "status.phase", "spec.nowhere['a']"])
def test_any_other_field_is_refused_by_name(path: str) -> None:
    with pytest.raises(PodConfigError, match="unsupported fieldPath"):
        field_value(POD, path, NODE)


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.cpu", "divisor": "0"}, "2"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1536"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "2"),
        ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
        ({"resource": "requests.memory"}, "0"),
        ({"resource": "limits.ephemeral-storage", "divisor": "1Gi"}, "1024"),
        ({"resource": "limits.cpu", "containerName": "free"}, "4"),
        ({"resource": "limits.memory", "containerName": "free", "divisor": "1Gi"}, "8"),
        ({"resource": "requests.cpu", "containerName": "free"}, "0"),
        ({"resource": "limits.hugepages-2Mi"}, "0"),
    ],
)
def test_resources_are_divided_and_rounded_up_and_limits_default_to_the_node(reference: Object, value: str) -> None:
    assert resource_value(reference, LIMITED, POD, NODE) == value


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"resource": "limits.nvidia.com/gpu"}, "unsupported container resource : limits.nvidia.com/gpu"),
        ({"resource": "cpu"}, "unsupported container resource : cpu"),
        ({"resource": "limits.cpu", "containerName": "absent"}, "container absent not found"),
    ],
)
def test_an_unknown_resource_or_container_is_named(reference: Object, message: str) -> None:
    with pytest.raises(PodConfigError, match=message):
        resource_value(reference, LIMITED, POD, NODE)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("", '""'), ("é ü", '"é ü"'), ("\x00\x7f", r'"\x00\x7f"'), ("\u00a0\u2028", r'"\u00a0\u2028"'), ("\\", r'"\\"')],
)
def test_values_are_quoted_as_go_does(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@given(st.dictionaries(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), st.text()))
def test_each_label_is_one_line_in_the_order_of_the_keys(labels: dict[str, str]) -> None:
    lines = format_map(labels).split("\n") if labels else []
    assert [line.partition("=")[0] for line in lines] == sorted(labels)
