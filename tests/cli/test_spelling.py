"""Suggestions for misspelled fields, by the schemas of real kinds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.cli.spelling import did_you_mean, nearest, unknown_fields
from trainwright.cluster.apiserver.schema.builtin import definition

JOB: dict[str, Any] = render_crd(KINDS["PyTorchJob"])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("spec.pytorchReplicaSpec", "pytorchReplicaSpecs"),
        ("spec.runPolicy.cleanPodPolciy", "cleanPodPolicy"),
        ("spec.pytorchReplicaSpecs.Master.restartpolicy", "restartPolicy"),
        ("spec.pytorchReplicaSpecs.Master.replica", "replicas"),
        ("sepc", "spec"),
        ("spec.qqqqqqq", None),
        ("nowhere.at.all", None),
    ],
)
def test_fields_of_a_job(path: str, meant: str | None) -> None:
    assert did_you_mean(path, JOB, definition) == meant


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("spec.containers[0].comand", "command"),
        ("spec.containers[0].env[1].vlaue", "value"),
        ("spec.volumes[0].hostpath", "hostPath"),
        ("spec.contianers", "containers"),
    ],
)
def test_fields_of_a_pod(path: str, meant: str) -> None:
    assert did_you_mean(path, definition("Pod"), definition) == meant


@given(st.text())
def test_any_path_is_accepted(path: str) -> None:
    meant = did_you_mean(path, JOB, definition)
    assert meant is None or meant in str(JOB)


def test_the_servers_message_names_the_fields() -> None:
    message = 'strict decoding error: unknown field "spec.a", unknown field "spec.b[0].c"'
    assert unknown_fields(message) == ["spec.a", "spec.b[0].c"]
    assert unknown_fields("admission webhook denied the request") == []


def test_letter_case_is_ignored() -> None:
    assert nearest("pytorchjob", ["PyTorchJob", "Pod"]) == "PyTorchJob"
    assert nearest("zebra", ["PyTorchJob", "Pod"]) is None
