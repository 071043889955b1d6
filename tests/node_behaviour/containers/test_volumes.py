"""Volumes: what containers find in them, who shares them, how long they live."""

from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container


def mount(path: str = "/v", **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "v", "mountPath": path, **fields}]


def volume(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "v", **source}]


async def test_containers_share_an_empty_dir(node: NodeNamespace) -> None:
    writer = container("echo hello > /v/file.part; mv /v/file.part /v/file", volumeMounts=mount(), name="writer")
    reader = container("until cat /v/file 2>/dev/null; do sleep 0.05; done", volumeMounts=mount())
    await node.pod("p", reader, writer, volumes=volume(emptyDir={}))
    assert await node.output("p") == "hello\n"


async def test_an_empty_dir_is_empty_and_writable_by_everyone(node: NodeNamespace) -> None:
    await node.pod("p", container("ls -A /v; stat -c %a /v", volumeMounts=mount()), volumes=volume(emptyDir={}))
    assert await node.output("p") == "777\n"


async def test_an_empty_dir_ends_with_its_pod(node: NodeNamespace) -> None:
    for name in ("one", "two"):
        await node.pod(name, container("ls -A /v; touch /v/x", volumeMounts=mount()), volumes=volume(emptyDir={}))
        assert await node.output(name) == ""


@pytest.mark.parametrize("kind", ["configMap", "secret"])
async def test_keys_are_files(node: NodeNamespace, kind: str) -> None:
    name = {"configMap": "name", "secret": "secretName"}[kind]
    await (node.config_map if kind == "configMap" else node.secret)("c", one="first", two="second\n")
    main = container("cat /v/one /v/two; ls /v", volumeMounts=mount())
    await node.pod("p", main, volumes=volume(**{kind: {name: "c"}}))
    assert await node.output("p") == "firstsecond\none\ntwo\n"


async def test_items_choose_keys_paths_and_modes(node: NodeNamespace) -> None:
    await node.config_map("c", one="1", two="2")
    items = [{"key": "one", "path": "deep/down/file", "mode": 0o400}]
    script = "cat /v/deep/down/file; stat -L -c %a /v/deep/down/file; ls /v"
    await node.pod(
        "p", container(script, volumeMounts=mount()), volumes=volume(configMap={"name": "c", "items": items})
    )
    assert await node.output("p") == "1400\ndeep\n"


async def test_files_have_the_default_mode(node: NodeNamespace) -> None:
    await node.config_map("c", one="1")
    source = {"name": "c", "defaultMode": 0o640}
    main = container("stat -L -c %a /v/one", volumeMounts=mount())
    await node.pod("p", main, volumes=volume(configMap=source))
    assert await node.output("p") == "640\n"


@pytest.mark.only("overlay", "kubelet")
async def test_config_files_are_read_only(node: NodeNamespace) -> None:
    await node.config_map("c", one="1")
    script = "(echo 2 > /v/one) 2>/dev/null || echo refused; cat /v/one"
    await node.pod("p", container(script, volumeMounts=mount()), volumes=volume(configMap={"name": "c"}))
    assert await node.output("p") == "refused\n1"


async def test_an_optional_config_map_may_be_missing(node: NodeNamespace) -> None:
    source = {"name": "absent", "optional": True}
    await node.pod("p", container("ls /v", volumeMounts=mount()), volumes=volume(configMap=source))
    assert await node.output("p") == ""


@pytest.mark.only("overlay", "kubelet")
async def test_a_sub_path_is_a_single_file(node: NodeNamespace) -> None:
    await node.config_map("c", one="1", two="2")
    main = container("cat /etc/app/settings; ls /etc/app", volumeMounts=mount("/etc/app/settings", subPath="two"))
    await node.pod("p", main, volumes=volume(configMap={"name": "c"}))
    assert await node.output("p") == "2settings\n"


async def test_a_sub_path_is_created_as_a_directory(node: NodeNamespace) -> None:
    writer = container("echo x > /v/file", volumeMounts=mount(subPath="deep/down"), name="writer")
    main = container("cat /v/deep/down/file", volumeMounts=mount())
    await node.pod("p", main, initContainers=[writer], volumes=volume(emptyDir={}))
    assert await node.output("p") == "x\n"


@pytest.mark.only("overlay", "kubelet")
async def test_a_sub_path_may_contain_variables(node: NodeNamespace) -> None:
    env = [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    writer = container("echo x > /v/file", volumeMounts=mount(subPathExpr="of-$(NAME)"), env=env, name="writer")
    main = container("cat /v/of-p/file", volumeMounts=mount())
    await node.pod("p", main, initContainers=[writer], volumes=volume(emptyDir={}))
    assert await node.output("p") == "x\n"


async def test_a_host_path_is_a_directory_of_the_machine(node: NodeNamespace) -> None:
    (node.host_directory / "in").write_text("from the machine\n")
    main = container("cat /v/in; echo from the pod > /v/out", volumeMounts=mount())
    await node.pod("p", main, volumes=volume(hostPath={"path": str(node.host_directory)}))
    assert await node.output("p") == "from the machine\n"
    assert (node.host_directory / "out").read_text() == "from the pod\n"


async def test_a_host_path_is_created_on_request(node: NodeNamespace) -> None:
    path = node.host_directory / "new"
    source = {"path": str(path), "type": "DirectoryOrCreate"}
    await node.pod("p", container("touch /v/x", volumeMounts=mount()), volumes=volume(hostPath=source))
    await node.until_phase("p", "Succeeded")
    assert (path / "x").exists()


@pytest.mark.only("overlay", "kubelet")
async def test_a_mount_can_be_read_only(node: NodeNamespace) -> None:
    main = container("touch /v/x || exit 9", volumeMounts=mount(readOnly=True))
    await node.pod("p", main, volumes=volume(hostPath={"path": str(node.host_directory)}))
    pod = await node.until_phase("p", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 9
    assert not (node.host_directory / "x").exists()


@pytest.mark.only("overlay", "kubelet")
async def test_a_volume_in_memory_has_its_size(node: NodeNamespace) -> None:
    main = container("df -k /v | tail -1 | awk '{print $1, $2}'", volumeMounts=mount())
    await node.pod("p", main, volumes=volume(emptyDir={"medium": "Memory", "sizeLimit": "8Mi"}))
    assert await node.output("p") == "tmpfs 8192\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "absent"}}, 'configmap "absent" not found'),
        ({"secret": {"secretName": "absent"}}, 'secret "absent" not found'),
        ({"hostPath": {"path": "/no/such/directory", "type": "Directory"}}, "is not a directory"),
    ],
)
async def test_a_volume_that_cannot_be_mounted_is_an_event(node: NodeNamespace, source: Any, message: str) -> None:
    await node.pod("p", container("exit 0", volumeMounts=mount()), volumes=volume(**source))
    event = await node.until_event("p", "FailedMount", containing=message)
    assert event["type"] == "Warning"
    assert event["message"].startswith('MountVolume.SetUp failed for volume "v" : ')


async def test_a_pod_waits_for_its_config_map(node: NodeNamespace) -> None:
    await node.pod("p", container("cat /v/key", volumeMounts=mount()), volumes=volume(configMap={"name": "c"}))
    await node.until_event("p", "FailedMount")
    pod = await node.read("p")
    assert pod is not None
    assert pod["status"]["phase"] == "Pending"
    await node.config_map("c", key="late\n")
    assert await node.output("p") == "late\n"


@pytest.mark.differs("A container whose volume is missing is `ContainerCreating`")
async def test_containers_of_a_pod_without_its_volume_are_being_created(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0", volumeMounts=mount()), volumes=volume(secret={"secretName": "absent"}))
    await node.until_event("p", "FailedMount")
    assert await node.until_container("p", "waiting") == {"reason": "ContainerCreating"}


async def test_a_pod_with_a_volume_beyond_its_limit_is_evicted(node: NodeNamespace) -> None:
    main = container("head -c 3000000 /dev/zero > /v/big; exec sleep 600", volumeMounts=mount())
    await node.pod("p", main, volumes=volume(emptyDir={"sizeLimit": "1Mi"}), restartPolicy="Always")
    pod = await node.until_phase("p", "Failed")
    message = 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    assert (pod["status"]["reason"], pod["status"]["message"]) == ("Evicted", message)
    event = await node.until_event("p", "Evicted")
    assert (event["type"], event["message"]) == ("Warning", message)
