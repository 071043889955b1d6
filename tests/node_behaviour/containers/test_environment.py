"""The environment of a container: env, envFrom, references and expansion."""

from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container, container_status


def variable(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source}


async def test_variables_have_their_values(node: NodeNamespace) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "EMPTY"}, {"name": "TEXT", "value": "with  spaces\nand lines"}]
    await node.pod("p", container('echo "$A|${EMPTY-unset}|$TEXT"', env=env))
    assert await node.output("p") == "1||with  spaces\nand lines\n"


async def test_values_refer_to_earlier_variables(node: NodeNamespace) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)-$(LATER)-$$(A)"},
        {"name": "LATER", "value": "x"},
    ]
    await node.pod("p", container('echo "$B"', env=env))
    assert await node.output("p") == "1-$(LATER)-$(A)\n"


async def test_command_and_args_refer_to_variables(node: NodeNamespace) -> None:
    env = [{"name": "A", "value": "one"}]
    command = {"command": ["echo", "$(A)"], "args": ["$(UNKNOWN)", "$$(A)"]}
    await node.pod("p", {**container(""), **command, "env": env})
    assert await node.output("p") == "one $(UNKNOWN) $(A)\n"


async def test_a_later_variable_of_the_same_name_wins(node: NodeNamespace) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    await node.pod("p", container("echo $A", env=env))
    assert await node.output("p") == "2\n"


async def test_single_keys_of_config_maps_and_secrets(node: NodeNamespace) -> None:
    await node.config_map("c", key="from config")
    await node.secret("s", key="from secret")
    env = [
        variable("A", configMapKeyRef={"name": "c", "key": "key"}),
        variable("B", secretKeyRef={"name": "s", "key": "key"}),
        variable("C", configMapKeyRef={"name": "c", "key": "absent", "optional": True}),
    ]
    await node.pod("p", container('echo "$A, $B, ${C-unset}"', env=env))
    assert await node.output("p") == "from config, from secret, unset\n"


async def test_all_keys_of_config_maps_and_secrets(node: NodeNamespace) -> None:
    await node.config_map("c", ONE="1", TWO="2")
    await node.secret("s", THREE="3")
    sources = [
        {"configMapRef": {"name": "c"}},
        {"prefix": "S_", "secretRef": {"name": "s"}},
        {"configMapRef": {"name": "absent", "optional": True}},
    ]
    await node.pod("p", container("echo $ONE $TWO $S_THREE", envFrom=sources, env=[{"name": "TWO", "value": "own"}]))
    assert await node.output("p") == "1 own 3\n"


async def test_fields_of_the_pod(node: NodeNamespace) -> None:
    paths = {
        "NAME": "metadata.name",
        "NAMESPACE": "metadata.namespace",
        "UID_": "metadata.uid",
        "LABEL": "metadata.labels['app']",
        "ANNOTATION": "metadata.annotations['example.com/note']",
        "ACCOUNT": "spec.serviceAccountName",
        "NODE": "spec.nodeName",
        "ADDRESS": "status.podIP",
        "HOST": "status.hostIP",
    }
    env = [variable(name, fieldRef={"fieldPath": path}) for name, path in paths.items()]
    metadata = {"labels": {"app": "test"}, "annotations": {"example.com/note": "text"}}
    script = "".join(f'echo "${{{name}}}"; ' for name in paths)
    await node.pod("p", container(script, env=env), metadata=metadata)
    pod = await node.until_phase("p", "Succeeded")
    assert (await node.log("p")).splitlines() == [
        "p",
        node.name,
        pod["metadata"]["uid"],
        "test",
        "text",
        "default",
        pod["spec"]["nodeName"],
        pod["status"]["podIP"],
        pod["status"]["hostIP"],
    ]


async def test_resources_of_the_container(node: NodeNamespace) -> None:
    env = [
        variable("CPU", resourceFieldRef={"resource": "limits.cpu"}),
        variable("MILLI", resourceFieldRef={"resource": "requests.cpu", "divisor": "1m"}),
        variable("MEMORY", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
    ]
    resources = {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "1Mi"}}
    await node.pod("p", container("echo $CPU $MILLI $MEMORY", env=env, resources=resources))
    assert await node.output("p") == "2 10 64\n"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"configMapKeyRef": {"name": "absent", "key": "k"}}, 'configmap "absent" not found'),
        ({"secretKeyRef": {"name": "absent", "key": "k"}}, 'secret "absent" not found'),
        ({"configMapKeyRef": {"name": "c", "key": "absent"}}, "couldn't find key absent in ConfigMap {}/c"),
        ({"secretKeyRef": {"name": "s", "key": "absent"}}, "couldn't find key absent in Secret {}/s"),
    ],
)
async def test_a_missing_reference_is_waited_for(node: NodeNamespace, reference: Any, message: str) -> None:
    await node.config_map("c", key="x")
    await node.secret("s", key="x")
    await node.pod("p", container("exit 0", env=[variable("A", **reference)]))
    waiting = await node.until_container("p", "waiting", reason="CreateContainerConfigError")
    assert waiting["message"].startswith(message.format(node.name))
    assert (await node.read("p") or {})["status"]["phase"] == "Pending"


async def test_a_container_starts_as_soon_as_its_config_map_exists(node: NodeNamespace) -> None:
    await node.pod("p", container("echo $A", env=[variable("A", configMapKeyRef={"name": "c", "key": "key"})]))
    await node.until_container("p", "waiting", reason="CreateContainerConfigError")
    await node.config_map("c", key="late")
    assert await node.output("p") == "late\n"
    assert container_status(await node.read("p") or {})["restartCount"] == 0
