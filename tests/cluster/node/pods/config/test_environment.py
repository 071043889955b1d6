"""Command and environment variables of containers, by Kubernetes' rules."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.runtime_configs import (
    OVERLAY,
    container,
    main,
    pod,
    run,
    waiting_reasons,
)
from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.environment import expand
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.objects import Object

NOT_FOUND = "not found: create it in namespace default, or correct its name"


def test_the_environment_of_the_caller_does_not_reach_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "x")
    assert main(pod())["env"] == {
        "PATH": "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/home/me",
        "HOSTNAME": "p",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMPI_MCA_oob_tcp_if_include": "lo",
        "OMPI_MCA_btl_tcp_if_include": "lo",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_coll": "^han",
    }


def test_the_open_mpi_of_the_pods_python_finds_its_files() -> None:
    context = replace(OVERLAY, open_mpis=frozenset({"/opt/venv", "/opt/mapped"}))
    assert main(pod(), context)["env"]["OPAL_PREFIX"] == "/opt/venv"
    assert "OPAL_PREFIX" not in main(pod(annotations={"python": "/opt/other/bin/python"}), context)["env"]
    mapped = replace(context, images={"main": ContainerImage(python="/opt/mapped/bin/python")})
    assert main(pod(), mapped)["env"]["OPAL_PREFIX"] == "/opt/mapped"
    own_files = replace(context, images={"main": ContainerImage(image_id="i", host_files=False)})
    assert "OPAL_PREFIX" not in main(pod(), own_files)["env"]


def test_variables_of_the_pod_override_those_of_the_node() -> None:
    variables = [{"name": "OMP_NUM_THREADS", "value": "4"}, {"name": "PATH", "value": "/mine"}]
    env = main(pod(container(env=variables)))["env"]
    assert (env["OMP_NUM_THREADS"], env["PATH"]) == ("4", "/mine")


def test_the_threads_of_a_job_share_the_cores_of_the_machine() -> None:
    assert main(pod(annotations={"replicas": "2"}))["env"]["OMP_NUM_THREADS"] == "2"
    assert main(pod(annotations={"replicas": "junk"}))["env"]["OMP_NUM_THREADS"] == "1"
    launcher = container(command=["torchrun"], args=["--nproc-per-node", "2", "train.py"])
    assert main(pod(launcher, annotations={"replicas": "1"}))["env"]["OMP_NUM_THREADS"] == "2"


def test_the_python_of_the_annotation_comes_first() -> None:
    found = run(pod(annotations={"python": "/home/me/venv/bin/python3"}))
    assert found.pod_json["containers"][0]["env"]["PATH"].startswith("/home/me/venv/bin:")
    assert found.python == "/home/me/venv/bin/python3"


def test_references_are_expanded_in_command_args_and_later_variables() -> None:
    variables = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)2 $(LATER) $$(A) $(HOME)"},
        {"name": "LATER", "value": "x"},
    ]
    found = main(pod(container(env=variables, command=["echo", "$(B)"], args=["$(A)", "$(NOBODY)", "$A", "$$(A)"])))
    assert found["env"]["B"] == "12 $(LATER) $(A) $(HOME)"
    assert found["argv"] == ["echo", "12 $(LATER) $(A) $(HOME)", "1", "$(NOBODY)", "$A", "$(A)"]


@given(st.text(st.sampled_from("$()AB x"), max_size=20))
def test_text_without_known_references_only_loses_doubled_dollars(text: str) -> None:
    expanded = expand(text, {})
    assert expanded.replace("$", "") == text.replace("$", "")
    assert len(expanded) <= len(text)


@given(st.text(max_size=20), st.text(max_size=5))
def test_a_doubled_dollar_protects_any_text(text: str, value: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": value, "": value}) == text


def test_values_come_from_other_objects() -> None:
    sources: dict[str, Any] = {
        "config_maps": {"c": {"data": {"epochs": "3", "lr": "0.1"}}},
        "secrets": {"s": {"data": {"token": base64.b64encode(b"hush").decode()}}},
    }
    variables = [
        {"name": "EPOCHS", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "epochs"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "x", "optional": True}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MEM", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}},
    ]
    subject = pod(
        container(
            env=variables,
            envFrom=[{"prefix": "CFG_", "configMapRef": {"name": "c"}}],
            resources={"requests": {"memory": "1.5Gi"}},
        )
    )
    env = main(subject, **sources)["env"]
    assert {name: env.get(name) for name in ("EPOCHS", "TOKEN", "NONE", "POD", "APP", "IP", "NODE", "CPUS", "MEM")} == {
        "EPOCHS": "3", "TOKEN": "hush", "NONE": None, "POD": "p", "APP": "digits", "IP": "127.64.0.7", "NODE": "local",
        "CPUS": "4", "MEM": "1536",
    }  # fmt: skip
    assert (env["CFG_epochs"], env["CFG_lr"]) == ("3", "0.1")


def test_a_variable_may_refer_to_those_of_services_and_overrides_them() -> None:
    context = replace(OVERLAY, service_variables={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "WEB_SERVICE_PORT": "80"})
    variables = [
        {"name": "URL", "value": "https://$(KUBERNETES_SERVICE_HOST)"},
        {"name": "WEB_SERVICE_PORT", "value": "1"},
    ]
    env = main(pod(container(env=variables)), context)["env"]
    assert env["URL"] == "https://127.0.0.1"
    assert (env["KUBERNETES_SERVICE_HOST"], env["WEB_SERVICE_PORT"]) == ("127.0.0.1", "1")


def test_binary_data_of_a_config_map_is_for_files_alone() -> None:
    config_map = {"data": {"a": "1"}, "binaryData": {"b": base64.b64encode(b"2").decode()}}
    env = main(pod(container(envFrom=[{"configMapRef": {"name": "c"}}])), config_maps={"c": config_map})["env"]
    assert env["a"] == "1"
    assert "b" not in env


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"configMapKeyRef": {"name": "c", "key": "x"}}, "couldn't find key x in ConfigMap default/c: it has y"),
        ({"configMapKeyRef": {"name": "absent", "key": "x"}}, f'configmap "absent" {NOT_FOUND}'),
        ({"secretKeyRef": {"name": "absent", "key": "x"}}, f'secret "absent" {NOT_FOUND}'),
        ({"fieldRef": {"fieldPath": "spec.nowhere"}}, "unsupported fieldPath: spec.nowhere"),
    ],
)
def test_a_pod_waits_for_missing_objects(variable: Object, message: str) -> None:
    subject = pod(container(env=[{"name": "A", "valueFrom": variable}]))
    (waiting,) = waiting_reasons(subject, config_maps={"c": {"data": {"y": "1"}}})
    assert waiting == WaitingReason(reason="CreateContainerConfigError", message=message, container="main")
