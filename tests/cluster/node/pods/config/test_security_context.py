"""Which fields of a security context have an effect, as root and as an ordinary user."""

from typing import Any

import pytest

from trainwright.cluster.linux.privileges import ADDABLE_CAPABILITIES, CAPABILITIES, CONTAINER_CAPABILITIES
from trainwright.cluster.linux.security_json import SecurityJson
from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.config.container_resources import container_limits, memory_limit
from trainwright.cluster.node.pods.config.security_context import (
    NodeUser,
    container_security,
    file_owner,
    image_security,
    pod_fields_not_honoured,
)
from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.objects import Object

ROOT = NodeUser(level="overlay", user=0, user_namespace=False)
ORDINARY = NodeUser(level="overlay", user=1000, user_namespace=True)
PLAIN = NodeUser(level="plain", user=1000, user_namespace=False)


def pod(of_pod: Object | None = None, **own: Any) -> Object:
    container = {"name": "main", "securityContext": own}
    metadata = {"name": "p", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"containers": [container], "securityContext": of_pod or {}}}


def security(node: NodeUser, of_pod: Object | None = None, **own: Any) -> tuple[SecurityJson, tuple[str, ...]]:
    subject = pod(of_pod, **own)
    found = container_security(subject, subject["spec"]["containers"][0], "spec.containers[0]", node)
    return found.config, (*pod_fields_not_honoured(subject, node), *found.not_honoured)


def test_without_a_context_root_has_the_rights_of_a_container() -> None:
    config, not_honoured = security(ROOT)
    assert set(config["capabilities"]) == set(CONTAINER_CAPABILITIES)
    assert (config["noNewPrivileges"], config["privileged"], config["readOnlyRoot"]) == (True, False, False)
    assert not not_honoured


def test_without_a_context_an_ordinary_user_has_no_capabilities() -> None:
    assert security(ORDINARY)[0]["capabilities"] == []
    nothing = {"privileged": False, "filtered": False, "noNewPrivileges": False, "readOnlyRoot": False}
    assert security(PLAIN) == (nothing, ())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"drop": ["ALL"]}, set()),
        ({"drop": ["all"], "add": ["CAP_KILL"]}, {"KILL"}),
        ({"add": ["IPC_LOCK"], "drop": ["CHOWN"]}, {*CONTAINER_CAPABILITIES, "IPC_LOCK"} - {"CHOWN"}),
    ],
)
def test_capabilities_are_added_and_dropped(spec: Object, expected: set[str]) -> None:
    assert set(security(ROOT, capabilities=spec)[0]["capabilities"]) == expected


@pytest.mark.parametrize("name", [*sorted({*CAPABILITIES} - ADDABLE_CAPABILITIES), "ALL", "cap_sys_admin"])
def test_a_capability_that_leads_out_of_the_container_is_refused(name: str) -> None:
    with pytest.raises(PodConfigError, match=f"capabilities.add: {_plain(name)}: .*; remove it, or set privileged"):
        security(ROOT, capabilities={"add": [name], "drop": ["ALL"]})


def _plain(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def test_every_container_but_a_privileged_one_has_the_filter_of_system_calls() -> None:
    assert security(ROOT)[0]["filtered"]
    assert security(ORDINARY, privileged=True)[0]["filtered"]
    config, not_honoured = security(ROOT, seccompProfile={"type": "Unconfined"})
    assert config["filtered"]
    assert not_honoured == (
        "spec.containers[0].securityContext.seccompProfile (unprivileged containers keep the filter of this node)",
    )


def test_a_privileged_container_keeps_everything() -> None:
    config, _ = security(ROOT, privileged=True)
    assert config == {"privileged": True, "filtered": False, "noNewPrivileges": False, "readOnlyRoot": False}
    config, not_honoured = security(ORDINARY, privileged=True)
    assert not config["privileged"]
    assert not_honoured == (
        "spec.containers[0].securityContext.privileged (pods run as user 1000, who started the cluster)",
    )


def test_user_and_groups_are_those_of_the_container_then_of_the_pod() -> None:
    of_pod = {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]}
    config, not_honoured = security(ROOT, of_pod, runAsUser=5)
    assert (config["user"], config["group"], config["groups"]) == (5, 2, [4, 3])
    assert not not_honoured


def test_an_ordinary_user_is_told_which_fields_have_no_effect() -> None:
    of_pod = {"runAsUser": 1000, "fsGroup": 3, "seccompProfile": {"type": "RuntimeDefault"}, "sysctls": [{"name": "a"}]}
    own = {"runAsUser": 5, "capabilities": {"add": ["NET_ADMIN"]}, "seccompProfile": {"type": "Localhost"}}
    config, not_honoured = security(ORDINARY, of_pod, **own)
    assert "user" not in config
    assert not_honoured == (
        "spec.securityContext.fsGroup (pods run as user 1000, who started the cluster)",
        "spec.securityContext.sysctls",
        "spec.containers[0].securityContext.runAsUser (pods run as user 1000, who started the cluster)",
        "spec.containers[0].securityContext.capabilities (pods run as user 1000, without capabilities)",
        "spec.containers[0].securityContext.seccompProfile (no such filter here)",
    )


def test_fields_that_ask_for_what_is_the_case_are_honoured() -> None:
    context = {
        "runAsUser": 1000, "runAsNonRoot": True, "allowPrivilegeEscalation": False, "privileged": False,
        "capabilities": {"drop": ["ALL"]}, "procMount": "Default",
    }  # fmt: skip
    config, not_honoured = security(ORDINARY, None, **context)
    assert config["noNewPrivileges"]
    assert not not_honoured


def test_an_unknown_capability_is_named() -> None:
    _, (text,) = security(ROOT, capabilities={"add": ["FLY"]})
    assert text == "spec.containers[0].securityContext.capabilities (unknown: FLY)"


@pytest.mark.parametrize(
    ("node", "own", "message"),
    [
        (ROOT, {}, "container has runAsNonRoot and image will run as root"),
        (ROOT, {"runAsUser": 0}, "container's runAsUser breaks non-root policy"),
        (ORDINARY, {"runAsUser": 0}, "container's runAsUser breaks non-root policy"),
    ],
)
def test_a_container_that_must_not_be_root_is_refused_in_the_words_of_the_kubelet(
    node: NodeUser, own: Object, message: str
) -> None:
    with pytest.raises(PodConfigError) as refused:
        security(node, {"runAsNonRoot": True}, **own)
    assert str(refused.value) == f'{message} (pod: "p_ns(u)", container: main)'


@pytest.mark.parametrize("node", [ROOT, ORDINARY])
def test_a_container_of_an_image_must_not_be_root_either(node: NodeUser) -> None:
    refused_pod = pod({"runAsNonRoot": True, "runAsUser": 0})
    with pytest.raises(PodConfigError, match="container's runAsUser breaks non-root policy"):
        image_security(refused_pod, refused_pod["spec"]["containers"][0], "", ContainerImage(user="7"), node)


def test_tokens_belong_to_the_user_of_all_containers_and_volumes_to_the_group() -> None:
    assert file_owner(pod({"runAsUser": 7, "fsGroup": 8}), ROOT) == (7, 8)
    assert file_owner(pod({"runAsUser": 7}, runAsUser=9), ROOT) == (9, None)
    several = pod({"runAsUser": 7})
    several["spec"]["containers"].append({"name": "other", "securityContext": {"runAsUser": 8}})
    assert file_owner(several, ROOT) == (None, None)
    assert file_owner(pod({"runAsUser": 7, "fsGroup": 8}), ORDINARY) == (None, None)


# Limits


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, {}),
        ({"requests": {"memory": "1Gi"}}, {}),
        ({"limits": {"memory": "64Mi"}}, {"memory": 64 << 20, "pids": 32768}),
        ({"limits": {"cpu": "1500m"}}, {"cpuQuota": 150_000, "cpuShares": 1536, "pids": 32768}),
        ({"limits": {"cpu": "1m"}, "requests": {"cpu": "1m"}}, {"cpuQuota": 1000, "cpuShares": 2, "pids": 32768}),
        ({"requests": {"cpu": "1000"}}, {"cpuShares": 262_144, "pids": 32768}),
    ],
)
def test_limits_of_a_container(resources: Object, expected: dict[str, int]) -> None:
    assert container_limits({"resources": resources}) == expected


def test_the_memory_of_a_pod_is_limited_if_that_of_all_containers_is() -> None:
    limited: Object = {"resources": {"limits": {"memory": "1Mi"}}}
    free: Object = {"resources": {}}
    assert memory_limit({"spec": {"containers": [limited, limited]}}) == 2 << 20
    assert memory_limit({"spec": {"containers": [limited, free]}}) is None
