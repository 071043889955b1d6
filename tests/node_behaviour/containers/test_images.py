"""What an image says about its program, against what the manifest says."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.node.case_images import PREFIX
from tests.support.node.namespace import NodeNamespace, terminated
from trainwright.objects import Object
from trainwright.objects.resources import PODS

pytestmark = pytest.mark.only("overlay", "kubelet")


def on(image: str, **fields: Any) -> Object:
    return {"name": "main", "image": f"{PREFIX}/{image}:1", "imagePullPolicy": "IfNotPresent", **fields}


async def output(node: NodeNamespace, container: Object) -> str:
    await node.pod("p", container)
    await node.until_phase("p", "Succeeded")
    return await node.log("p")


async def waiting(node: NodeNamespace, container: Object) -> Object:
    """What the container waits for; fails as soon as the pod has ended instead."""
    await node.pod("p", container)

    def cause(pod: Object) -> Object:
        statuses = pod["status"].get("containerStatuses") or [{"state": {}}]
        found: Object = statuses[0]["state"].get("waiting") or {}
        return found if found.get("reason") != "ContainerCreating" else {}

    pod = await node.until("p", lambda pod: cause(pod) or pod["status"].get("phase") in {"Succeeded", "Failed"})
    assert cause(pod), pod["status"]
    return cause(pod)


async def test_entrypoint_and_cmd_are_the_program(node: NodeNamespace) -> None:
    assert await output(node, on("program")) == "['a', '$(GREETING)'] /srv/work from the image /root\n"


async def test_args_replace_cmd(node: NodeNamespace) -> None:
    container = on("program", args=["$(B)"], env=[{"name": "B", "value": "b"}])
    assert await output(node, container) == "['b'] /srv/work from the image /root\n"


async def test_command_replaces_entrypoint_and_cmd(node: NodeNamespace) -> None:
    assert await output(node, on("program", command=["sh", "-c", "echo $# $GREETING"])) == "0 from the image\n"


async def test_command_and_args_replace_both(node: NodeNamespace) -> None:
    assert await output(node, on("program", command=["sh", "-c", "echo $0 $1"], args=["x", "y"])) == "x y\n"


async def test_variables_of_the_image_are_not_known_to_args(node: NodeNamespace) -> None:
    assert (await output(node, on("program", args=["$(GREETING)"]))).startswith("['$(GREETING)']")


async def test_the_host_name_is_in_a_file(node: NodeNamespace) -> None:
    assert await output(node, on("cmd", command=["cat", "/etc/hostname"])) == "p\n"


async def test_env_and_working_dir_replace_those_of_the_image(node: NodeNamespace) -> None:
    container = on("program", env=[{"name": "GREETING", "value": "mine"}], workingDir="/tmp")
    assert await output(node, container) == "['a', '$(GREETING)'] /tmp mine /root\n"


async def test_an_image_without_a_working_directory_begins_at_the_root(node: NodeNamespace) -> None:
    assert await output(node, on("cmd")) == "cmd\n/\n"


@pytest.mark.as_root
async def test_the_user_of_the_image_has_its_groups_and_home(node: NodeNamespace) -> None:
    expected = "uid=1234(trainer) gid=2345(trainers) groups=2345(trainers),44(gpu)\n/home/trainer\n"
    assert await output(node, on("trainer")) == expected


@pytest.mark.as_root
async def test_a_number_without_an_entry_has_the_group_of_root(node: NodeNamespace) -> None:
    assert await output(node, on("numeric")) == "uid=4321 gid=0(root) groups=0(root)\n"


@pytest.mark.as_root
async def test_a_group_in_the_user_of_the_image_does_not_count(node: NodeNamespace) -> None:
    assert (await output(node, on("group"))).startswith("uid=1234(trainer) gid=2345(trainers)")


@pytest.mark.as_root
async def test_run_as_user_replaces_the_user_of_the_image(node: NodeNamespace) -> None:
    assert (await output(node, on("trainer", command=["id"], securityContext={"runAsUser": 7}))).startswith(
        "uid=7 gid=0"
    )


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (
            "trainer",
            "container has runAsNonRoot and image has non-numeric user (trainer), cannot verify user is non-root",
        ),
        ("cmd", "container has runAsNonRoot and image will run as root"),
    ],
)
async def test_run_as_non_root_is_checked_against_the_image(node: NodeNamespace, image: str, text: str) -> None:
    found = await waiting(node, on(image, securityContext={"runAsNonRoot": True}))
    assert found["reason"] == "CreateContainerConfigError"
    assert found["message"].startswith(text)


@pytest.mark.parametrize(("image", "text"), [("stranger", ""), ("nothing", "no command specified")])
async def test_an_image_that_cannot_run_waits_with_the_cause(node: NodeNamespace, image: str, text: str) -> None:
    found = await waiting(node, on(image))
    assert found["reason"] == "CreateContainerError"
    assert text in found["message"]


async def test_a_name_that_is_none_waits(node: NodeNamespace) -> None:
    container = {"name": "main", "image": "Not/A_Name", "command": ["true"], "imagePullPolicy": "Never"}
    found = await waiting(node, container)
    text = 'Failed to apply default image tag "Not/A_Name": couldn\'t parse image name "Not/A_Name": invalid reference'
    assert found["reason"] == "InvalidImageName"
    assert found["message"].startswith(text)


async def test_a_stored_image_is_not_pulled(node: NodeNamespace) -> None:
    await node.pod("p", on("cmd"))
    pod = await node.until_phase("p", "Succeeded")

    assert "sha256:" in pod["status"]["containerStatuses"][0]["imageID"]
    text = f'Container image "{PREFIX}/cmd:1" already present on machine and can be accessed by the pod'
    assert (await node.until_event("p", "Pulled"))["message"] == text


@pytest.mark.differs("The image of a pod that no registry has")
async def test_an_absent_image_is_never_pulled(node: NodeNamespace) -> None:
    found = await waiting(node, on("absent", command=["true"], imagePullPolicy="Never"))
    assert found["reason"] == "ErrImageNeverPull"
    assert found["message"] == f'Container image "{PREFIX}/absent:1" is not present with pull policy of Never'


async def test_the_stop_signal_of_the_image_is_sent(node: NodeNamespace) -> None:
    await node.pod("p", on("interrupt"), terminationGracePeriodSeconds=20)
    await node.until_log("p", "started")
    await node.client.patch(PODS, "p", {"spec": {"activeDeadlineSeconds": 1}}, namespace=node.name)
    ended = terminated(await node.until_phase("p", "Failed"))
    assert ended["exitCode"] == 3


async def test_a_volume_of_the_image_is_writable_below_a_read_only_root(node: NodeNamespace) -> None:
    await node.pod("p", on("volume", securityContext={"readOnlyRootFilesystem": True}))
    ended = await node.until_phase("p", "Failed")
    assert terminated(ended)["exitCode"] == 2
    assert "1" in (await node.log("p")).splitlines()


async def test_exec_finds_files_environment_and_directory_of_the_image(node: NodeNamespace) -> None:
    await node.pod("p", on("program", command=["sh", "-c", "sleep 600"]))
    await node.until_container("p", "running")

    found = await node.exec("p", "sh", "-c", "cat /etc/machine-image; echo $GREETING; pwd; exit 3")

    assert (found.exit_code, found.stdout) == (3, b"machine image\nfrom the image\n/srv/work\n")


async def test_attach_reaches_the_program_of_the_image(node: NodeNamespace) -> None:
    await node.pod("p", on("cmd", command=["sh", "-c", "cat; cat /etc/machine-image"], stdin=True, stdinOnce=True))
    await node.until_container("p", "running")

    await node.kubectl("attach", "-i", "p", stdin=b"typed\n")

    assert await node.output("p") == "typed\nmachine image\n"


async def test_cp_copies_into_and_out_of_the_image(node: NodeNamespace) -> None:
    await node.pod("p", on("cmd", command=["sh", "-c", "sleep 600"]))
    await node.until_container("p", "running")
    with tempfile.TemporaryDirectory() as name:
        sent, fetched = Path(name, "sent"), Path(name, "fetched")
        sent.write_text("from outside\n")

        assert (await node.kubectl("cp", str(sent), "p:/received"))[0] == 0
        assert (await node.kubectl("cp", "p:/etc/machine-image", str(fetched)))[0] == 0

        assert (await node.exec("p", "cat", "/received")).stdout == b"from outside\n"
        assert fetched.read_text() == "machine image\n"
