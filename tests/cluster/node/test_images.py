"""Pods on the files of images: the agent on the embedded API server, a store with real images, real processes."""

import asyncio
import base64
import fcntl
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.node import Node, running_node
from tests.support.images.builder import add_image
from tests.support.images.machine_image import MARK, PYTHON, add_machine_image
from tests.support.images.registry import PASSWORD, USER, running_registry
from tests.support.waiting import eventually
from trainwright.cluster.images.blobs import lock, lock_file
from trainwright.cluster.images.formats import HOST_FILES_LABEL, RunConfig
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.mappings import ImageMapping, ImageMappings
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.credentials import DockerConfig
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.cluster.node.pods.config.container_image import ContainerImage
from trainwright.cluster.node.pods.images import pod_images
from trainwright.cluster.node.pods.images.image_files import read_accounts
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, NODES, SECRETS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    """With the image of this machine's files, and others on top of it."""
    store = ImageStore(tmp_path_factory.mktemp("images"))
    UnpackedLayers(store).directories(add_machine_image(store))
    program = {"app/train.py": b"import os, sys\nprint(sys.argv[1:], os.getcwd(), os.environ['FROM_IMAGE'])\n"}
    config = RunConfig(
        entrypoint=[PYTHON, "/app/train.py"],
        cmd=["from", "cmd"],
        env=["PATH=/opt/python/bin:/bin", "FROM_IMAGE=yes"],
        working_dir="/app/work",
        stop_signal="SIGINT",
    )
    add_machine_image(store, "trainer:1", config=config, files=program)
    add_machine_image(store, "user:1", config=RunConfig(user="trainer", cmd=["id"]))
    add_machine_image(store, "unknown-user:1", config=RunConfig(user="nobody-here", cmd=["id"]))
    labels = {HOST_FILES_LABEL: "true"}
    over = RunConfig(labels=labels, entrypoint=["cat", "/srv/own/file"], env=["OWN=1", "PATH=/srv/own/bin:/usr/bin"])
    add_image(store, "over:1", ({"srv/own/file": b"over the host's files", "etc/own": b"1"},), over)
    add_image(store, "empty:1", ({"file": b"1"},), RunConfig())
    return store


@pytest.fixture
async def node(store: ImageStore, tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path / "node", images=store.directory) as running:
        yield running


def on(image: str, **fields: Any) -> Object:
    return {"name": "main", "image": image, **fields}


def sh(script: str, image: str = "machine", **fields: Any) -> Object:
    return on(image, command=["sh", "-c", script], imagePullPolicy="IfNotPresent", **fields)


def status_of(pod: Object) -> Object:
    found: Object = pod["status"]["containerStatuses"][0]
    return found


async def events_of(node: Node, name: str) -> list[tuple[str, str]]:
    items = (await node.client.list(EVENTS, namespace="default")).items
    return [(one["reason"], one["message"]) for one in items if one["involvedObject"]["name"] == name]


async def until_event(node: Node, name: str, reason: str, message: str) -> None:
    await eventually(lambda: events_of(node, name), lambda events: (reason, message) in events)


async def test_the_root_directory_is_that_of_the_image(node: Node, store: ImageStore) -> None:
    await node.create("p", sh(f"cat {MARK}; python3 -c 'import sys; print(sys.prefix)'; ls /; cat /etc/hosts"))

    pod = await node.until_phase("p", "Succeeded")

    lines = (await node.log(pod)).splitlines()
    assert lines[:2] == ["machine image", "/opt/python"]
    assert "usr" not in lines
    assert any(line.split()[-1] == "p" for line in lines if line.startswith(pod["status"]["podIP"]))
    image = store.find("machine")
    assert image is not None
    assert status_of(pod)["imageID"] == f"docker.io/library/machine@{image.descriptor.digest}"
    text = 'Container image "machine" already present on machine and can be accessed by the pod'
    assert (await node.event("Pulled"))["message"] == text


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({}, "['from', 'cmd'] /app/work yes\n"),
        ({"args": ["$(A)", "b"], "env": [{"name": "A", "value": "a"}]}, "['a', 'b'] /app/work yes\n"),
        ({"command": ["python3", "/app/train.py"]}, "[] /app/work yes\n"),
        ({"command": ["python3"], "args": ["/app/train.py", "x"]}, "['x'] /app/work yes\n"),
        ({"workingDir": "/tmp", "env": [{"name": "FROM_IMAGE", "value": "no"}]}, "['from', 'cmd'] /tmp no\n"),
    ],
)
async def test_command_and_args_against_entrypoint_and_cmd(node: Node, fields: Object, output: str) -> None:
    await node.create("p", on("trainer:1", **fields))

    assert await node.log(await node.until_phase("p", "Succeeded")) == output


async def test_the_user_is_looked_up_in_the_image(node: Node) -> None:
    await node.create("p", on("user:1"))

    pod = await node.until_phase("p", "Succeeded")

    assert await node.log(pod) == "uid=1234(trainer) gid=2345(trainers) groups=2345(trainers),44(gpu)\n"


async def test_run_as_user_replaces_the_user_of_the_image(node: Node) -> None:
    await node.create("p", on("user:1", securityContext={"runAsUser": 7, "runAsGroup": 8}))

    assert (await node.log(await node.until_phase("p", "Succeeded"))).startswith("uid=7 gid=8")


@pytest.mark.parametrize(
    ("container", "reason", "message"),
    [
        (on("unknown-user:1"), "CreateContainerError", "unable to find user nobody-here"),
        (on("empty:1"), "CreateContainerError", "no command specified"),
        (on("UPPER:1", command=["true"]), "InvalidImageName", "must be lowercase"),
        (
            on("user:1", securityContext={"runAsNonRoot": True}),
            "CreateContainerConfigError",
            "container has runAsNonRoot and image has non-numeric user (trainer)",
        ),
        (
            on("machine", command=["id"], imagePullPolicy="Never", securityContext={"runAsNonRoot": True}),
            "CreateContainerConfigError",
            "container has runAsNonRoot and image will run as root",
        ),
    ],
)
async def test_what_keeps_a_container_from_starting(node: Node, container: Object, reason: str, message: str) -> None:
    await node.create("p", container)

    waiting = await node.until_waiting("p")

    assert waiting["reason"] == reason
    assert message in waiting["message"]


async def test_what_a_program_writes_is_private_to_its_container(node: Node, store: ImageStore) -> None:
    script = f"echo new > /app; echo new > {MARK}; rm -r /home; cat /app"

    for name in ("a", "b"):
        await node.create(name, sh(f"test -e /app && exit 1; {script}"))
        assert await node.log(await node.until_phase(name, "Succeeded")) == "new\n"

    image = store.find("machine")
    assert image is not None
    [layer] = UnpackedLayers(store).directories(image)
    assert Path(f"{layer}{MARK}").read_text() == "machine image\n"


async def test_a_pod_sees_neither_the_host_nor_the_store(node: Node, store: ImageStore, tmp_path: Path) -> None:
    link = f"ls {store.directory} {tmp_path} /proc/1/root/etc/machine-image /proc/1/cwd 2>&1"
    await node.create("p", sh(f"{link}; cat /proc/mounts | head -1", workingDir="/work"))

    pod = await node.until_phase("p", "Succeeded")

    log = await node.log(pod)
    assert "blobs" not in log
    assert log.count("No such file") + log.count("ermission denied") >= 3


async def test_probes_run_inside_the_image(node: Node) -> None:
    probe = {"exec": {"command": ["cat", MARK]}, "periodSeconds": 1}
    await node.create("p", sh("while :; do sleep 0.05; done", "trainer:1", readinessProbe=probe))

    def is_ready(pod: Object) -> bool:
        statuses = pod.get("status", {}).get("containerStatuses") or [{}]
        return bool(statuses[0].get("ready"))

    await node.until("p", is_ready)
    await node.delete("p", grace_period_seconds=0)


async def test_volumes_are_mounted_into_the_image(node: Node) -> None:
    volumes = [{"name": "data", "emptyDir": {}}]
    mounts = [{"name": "data", "mountPath": "/new/place"}, {"name": "data", "mountPath": "/etc/own", "subPath": "x"}]
    await node.create("p", sh("echo 1 > /new/place/f; ls /new/place", volumeMounts=mounts), volumes=volumes)

    assert await node.log(await node.until_phase("p", "Succeeded")) == "f\nx\n"


async def test_a_container_with_a_read_only_root_can_write_to_volumes_of_its_image(
    node: Node, store: ImageStore
) -> None:
    add_machine_image(store, "volume:1", config=RunConfig(volumes={"/data": {}}))
    security = {"readOnlyRootFilesystem": True}

    await node.create("p", sh("echo x > /y; echo 1 > /data/f && cat /data/f", "volume:1", securityContext=security))

    log = await node.log(await node.until_phase("p", "Succeeded"))
    assert "Read-only file system" in log
    assert "1" in log.splitlines()


async def test_the_stop_signal_of_the_image_ends_the_program(node: Node, tmp_path: Path) -> None:
    traps = "trap 'echo interrupted > /host/ended; exit 0' INT; trap '' TERM"
    script = f"{traps}; touch /host/up; while :; do sleep 0.05; done"
    volume = {"name": "host", "hostPath": {"path": str(tmp_path)}}
    mounts = [{"name": "host", "mountPath": "/host"}]
    await node.create("p", sh(script, "trainer:1", volumeMounts=mounts), volumes=[volume])
    await eventually(lambda: asyncio.to_thread((tmp_path / "up").exists), bool)

    await node.delete("p")

    await node.until_gone("p")
    assert (tmp_path / "ended").read_text() == "interrupted\n"


async def test_layers_over_the_files_of_this_machine(node: Node) -> None:
    await node.create("p", on("over:1"))
    await node.create("q", on("over:1", command=["sh", "-c", "test -e /usr && cat /etc/own && echo $OWN; echo $PATH"]))

    pod = await node.until_phase("p", "Succeeded")
    assert await node.log(pod) == "over the host's files"
    assert pod["metadata"]["annotations"]["node.trainwright.dev/host-files"] == "main"
    log = await node.log(await node.until_phase("q", "Succeeded"))
    assert log.startswith("11\n/srv/own/bin:")


async def test_names_can_be_mapped_to_an_image_or_to_a_python(node: Node, store: ImageStore) -> None:
    mappings = ImageMappings(store.directory)
    mappings.add(ImageMapping(pattern="gcr.io/team/*", image="machine"))
    mappings.add(ImageMapping(pattern="gcr.io/team/on-host", python="/usr/bin/python3"))
    try:
        await node.create("p", sh(f"cat {MARK}", "gcr.io/team/a:2"))
        await node.create("q", sh("echo $PATH", "gcr.io/team/on-host"))

        assert await node.log(await node.until_phase("p", "Succeeded")) == "machine image\n"
        assert (await node.log(await node.until_phase("q", "Succeeded"))).startswith("/usr/bin:")
        assert not [one for one in await events_of(node, "q") if one[0] == "UnknownImage"]
    finally:
        for pattern in ("gcr.io/team/*", "gcr.io/team/on-host"):
            mappings.remove(pattern)


async def test_always_without_a_registry_runs_the_stored_image_with_a_warning(node: Node) -> None:
    await node.create("p", on("machine:latest", command=["id"], imagePullPolicy="Always"))

    await node.until_phase("p", "Succeeded")

    assert "no registry is configured for machine:latest" in (await node.event("ImageNotPulled"))["message"]


async def test_an_absent_pull_secret_does_not_block_a_pod(node: Node) -> None:
    await node.create("p", sh("true"), imagePullSecrets=[{"name": "absent"}])

    await node.until_phase("p", "Succeeded")


async def test_unknown_images_can_be_refused(store: ImageStore, tmp_path: Path) -> None:
    async with running_node(tmp_path / "node", images=store.directory, unknown_images="refuse") as node:
        await node.create("p", sh("true", "absent:1"))
        await node.create("q", on("absent:1", command=["true"], imagePullPolicy="Never"))

        waiting = await node.until_waiting("p")
        never = await node.until_waiting("q")

        assert waiting["reason"] == "ErrImagePull"
        assert "--unknown-images=refuse" in waiting["message"]
        assert never["reason"] == "ErrImageNeverPull"
        assert never["message"] == 'Container image "absent:1" is not present with pull policy of Never'
        await until_event(node, "q", "Failed", "Error: ErrImageNeverPull")


async def test_a_failed_pull_is_reported_and_backed_off(store: ImageStore, tmp_path: Path) -> None:
    async with running_node(tmp_path / "node", images=store.directory, registries=("127.0.0.1:9",)) as node:
        await node.create("p", sh("true", "127.0.0.1:9/team/absent:1"))

        def backs_off(pod: Object) -> bool:
            statuses = pod.get("status", {}).get("containerStatuses") or []
            return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in statuses)

        pod = await node.until("p", backs_off)

        message = status_of(pod)["state"]["waiting"]["message"]
        assert message.startswith('Back-off pulling image "127.0.0.1:9/team/absent:1": ErrImagePull: ')
        await until_event(node, "p", "Pulling", 'Pulling image "127.0.0.1:9/team/absent:1"')
        await until_event(node, "p", "BackOff", 'Back-off pulling image "127.0.0.1:9/team/absent:1"')
        await until_event(node, "p", "Failed", "Error: ErrImagePull")
        await until_event(node, "p", "Failed", "Error: ImagePullBackOff")


async def test_always_with_an_unreachable_registry_runs_the_stored_image(store: ImageStore, tmp_path: Path) -> None:
    add_machine_image(store, "127.0.0.1:9/machine:1")
    async with running_node(tmp_path / "node", images=store.directory, registries=("127.0.0.1:9",)) as node:
        await node.create("p", on("127.0.0.1:9/machine:1", command=["id"], imagePullPolicy="Always"))

        await node.until_phase("p", "Succeeded")

        assert "the image of this machine is used" in (await node.event("ImageNotPulled"))["message"]


async def test_a_pull_secret_makes_the_node_ask_the_registry(node: Node) -> None:
    config = {"auths": {"127.0.0.1:9": {"auth": base64.b64encode(b"user:password").decode()}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(config).encode()).decode()}
    metadata = {"name": "registry", "namespace": "default"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    await node.client.create(SECRETS, {**secret, "type": "kubernetes.io/dockerconfigjson"})

    await node.create("p", sh("true", "127.0.0.1:9/absent:1"), imagePullSecrets=[{"name": "registry"}])

    assert (await node.until_waiting("p"))["reason"] in {"ErrImagePull", "ImagePullBackOff"}


async def test_at_plain_an_image_with_files_of_its_own_waits(store: ImageStore, tmp_path: Path) -> None:
    async with running_node(tmp_path / "node", sandbox="plain", images=store.directory) as node:
        await node.create("p", sh("true"))

        waiting = await node.until_waiting("p")

        assert waiting["reason"] == "ImageNeedsOverlay"
        assert "trainwright image map machine --python" in waiting["message"]


async def test_images_of_running_pods_are_not_collected(node: Node, store: ImageStore) -> None:
    image = add_machine_image(store, "temporary:1", files={"only/here": b"1"})
    await node.create("p", sh("while :; do sleep 0.05; cat /only/here >/dev/null || exit 1; done", "temporary:1"))
    await node.until_phase("p", "Running")
    assert image.reference is not None

    store.remove(image.reference)
    store.collect()

    assert UnpackedLayers(store).find(image) is not None
    await node.delete("p", grace_period_seconds=0)
    await node.until_gone("p")


async def test_the_node_lists_its_images(node: Node) -> None:
    await node.create("p", sh("true"))
    await node.until_phase("p", "Succeeded")

    found = (await node.client.get(NODES, "local"))["status"]["images"]

    names = [name for image in found for name in image["names"]]
    assert "docker.io/library/trainer:1" in names
    assert all(image["sizeBytes"] > 0 for image in found)


async def test_at_plain_layers_over_the_files_of_this_machine_are_a_copy(store: ImageStore, tmp_path: Path) -> None:
    async with running_node(tmp_path / "node", sandbox="plain", images=store.directory) as node:
        await node.create("p", on("over:1"))
        await node.create(
            "q", on("over:1", command=["sh", "-c", "echo x >> /srv/own/file; cat /srv/own/file; echo $OWN"])
        )

        assert await node.log(await node.until_phase("p", "Succeeded")) == "over the host's files"
        assert await node.log(await node.until_phase("q", "Succeeded")) == "over the host's filesx\n1\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageStore, Image]:
    """Another machine, from which an image is pushed."""
    there = ImageStore(tmp_path_factory.mktemp("there"))
    return there, add_machine_image(there, config=RunConfig(cmd=["cat", MARK]))


@pytest.mark.registry
async def test_a_pod_pulls_its_image(machine: tuple[ImageStore, Image], tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as address:
        name = f"{address}/team/machine:1"
        pushed = await push_image(*machine, ImageReference.parse(name))
        async with running_node(tmp_path / "node", images=tmp_path / "images", registries=(address,)) as node:
            await node.create("p", on(name))
            pod = await node.until_phase("p", "Succeeded")

            assert await node.log(pod) == "machine image\n"
            assert status_of(pod)["image"] == name
            assert status_of(pod)["imageID"] == f"{address}/team/machine@{pushed.digest}"
            await until_event(node, "p", "Pulling", f'Pulling image "{name}"')
            size = machine[1].manifest.layers[0].size
            text = rf"Successfully pulled image .{name}. in \S+ \(\S+ including waiting\). Image size: {size} bytes\."
            assert re.fullmatch(text, (await node.event("Pulled"))["message"])
            # The second pod finds it.
            await node.create("q", on(name, imagePullPolicy="IfNotPresent"))
            await node.until_phase("q", "Succeeded")
            present = f'Container image "{name}" already present on machine and can be accessed by the pod'
            await until_event(node, "q", "Pulled", present)
            assert present not in dict(await events_of(node, "p")).values()


@pytest.mark.registry
async def test_a_pull_secret_opens_the_registry(machine: tuple[ImageStore, Image], tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry", passwords=True) as address:
        name = f"{address}/private:1"
        config = {"auths": {address: {"username": USER, "password": PASSWORD}}}
        await push_image(*machine, ImageReference.parse(name), credentials=DockerConfig.of_pull_secret(json_of(config)))
        async with running_node(tmp_path / "node", images=tmp_path / "images", registries=(address,)) as node:
            config["auths"][address]["password"] = "guess"
            await add_pull_secret(node, "wrong", config)
            await node.create("wrong", on(name), imagePullSecrets=[{"name": "wrong"}])
            waiting = await node.until_waiting("wrong")
            assert waiting["reason"] in {"ErrImagePull", "ImagePullBackOff"}
            assert f"{name}: " in waiting["message"]
            assert "unauthorized: authentication required" in waiting["message"]

            config["auths"][address]["password"] = PASSWORD
            await add_pull_secret(node, "right", config)
            await node.create("right", on(name), imagePullSecrets=[{"name": "right"}])
            assert await node.log(await node.until_phase("right", "Succeeded")) == "machine image\n"


def json_of(config: Object) -> bytes:
    return json.dumps(config).encode()


async def add_pull_secret(node: Node, name: str, config: Object) -> None:
    data = {".dockerconfigjson": base64.b64encode(json_of(config)).decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}, "data": data}
    await node.client.create(SECRETS, {**secret, "type": "kubernetes.io/dockerconfigjson"})


async def test_an_image_is_kept_while_a_pod_waits_for_its_layers(store: ImageStore, node: Node) -> None:
    image = add_machine_image(store, "starting:1", files={"only/starting": b"1"})
    layer = store.layer_path(image.config.rootfs.diff_ids[-1])
    with lock_file(layer.with_suffix(".lock")) as descriptor:
        lock(descriptor, fcntl.LOCK_EX)  # the layer is not unpacked until this ends
        await node.create("p", sh("cat /only/starting", "starting:1"))
        await eventually(lambda: pinned(store), lambda found: ("default/p", image.descriptor.digest) in found)
        assert image.reference is not None
        store.remove(image.reference)
        store.collect()
    store.collect()

    assert await node.log(await node.until_phase("p", "Succeeded")) == "1"


async def pinned(store: ImageStore) -> list[tuple[str, str]]:
    return [(pin.pod, digest) for pin in store.pins().values() for digest in pin.digests]


async def test_prune_deletes_nothing_between_finding_and_using_an_image(
    store: ImageStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = add_machine_image(store, "found:1", files={"only/found": b"1"})
    UnpackedLayers(store).directories(image)
    assert image.reference is not None
    name = image.reference
    is_busy = []

    def read_later(*arguments: Any) -> ContainerImage:
        store.remove(name)
        is_busy.append(store.collect().busy)
        return read_accounts(*arguments)

    monkeypatch.setattr(pod_images, "read_accounts", read_later)
    await node.create("p", sh("cat /only/found", "found:1"))

    assert await node.log(await node.until_phase("p", "Succeeded")) == "1"
    assert is_busy[0]


async def test_secrets_of_a_pod_on_an_image_are_private(node: Node, tmp_path: Path) -> None:
    needle = b"needle-1f6a"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    await node.client.create(SECRETS, {**secret, "data": {"key": base64.b64encode(needle).decode()}})
    volumes = [{"name": "s", "secret": {"secretName": "s"}}]
    mounts = [{"name": "s", "mountPath": "/secrets"}]
    await node.create("p", sh("cat /secrets/key; sleep 600", volumeMounts=mounts), volumes=volumes)
    pod = await node.until_phase("p", "Running")
    await eventually(lambda: node.log(pod), lambda log: log == needle.decode())

    # Other users of this machine cannot reach the file.
    places = [path for path in (tmp_path / "node").rglob("key") if path.is_file() and path.read_bytes() == needle]
    assert places
    for place in places:
        above = [one for one in place.parents if one.is_relative_to(tmp_path / "node")]
        assert any(one.stat().st_mode & 0o077 == 0 for one in above), place
    # Nor can another pod, on the same image.
    search = (
        "import os\nfor top, _, names in os.walk('/'):\n for name in names:\n  path = os.path.join(top, name)\n"
        "  if os.path.isfile(path) and not top.startswith(('/proc/', '/sys/')) and os.path.getsize(path) == 11:\n"
        "   print(open(path, 'rb').read())\nprint('searched')\n"
    )
    await node.create("q", on("machine", command=[PYTHON, "-c", search], imagePullPolicy="Never"))
    log = await node.log(await node.until_phase("q", "Succeeded"))
    assert log.endswith("searched\n")
    assert needle.decode() not in log
    await node.delete("p", grace_period_seconds=0)
