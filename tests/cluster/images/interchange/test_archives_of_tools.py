"""Archives, layouts and registries that docker, podman, skopeo and containerd read and write as well."""

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images.builder import add_built_image, add_image
from tests.support.images.containerd import running_containerd
from tests.support.images.docker import docker_files, running_docker
from tests.support.images.machine_image import add_machine_image
from tests.support.images.registry import running_registry
from tests.support.images.tools import REASON, ContainerTools, are_wanted
from trainwright.cluster.images.archives import load_archive, save_archive
from trainwright.cluster.images.formats import RunConfig, digest_of
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.pull import pull_image
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.store import Image, ImageStore

pytestmark = [
    pytest.mark.images,
    pytest.mark.skipif(not are_wanted(), reason=REASON),
]

LAYERS = ({"base.txt": b"base" * 1000}, {"own.txt": b"own" * 10})


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerTools]:
    tools = ContainerTools(tmp_path_factory.mktemp("containers"))
    yield tools
    tools.close()


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def save(store: ImageStore, image: Image, path: Path) -> Path:
    with path.open("wb") as file:
        save_archive(store, [image], file)
    return path


def load(store: ImageStore, path: Path) -> Image:
    with path.open("rb") as file:
        [image] = load_archive(store, file)
    return image


def podman(tools: ContainerTools, *words: str | Path) -> str:
    storage = ("--root", tools.directory / "storage", "--runroot", tools.directory / "run")
    return tools.run("podman", *storage, "--storage-driver", "overlay", *words).stdout


def test_saved_image_runs_in_podman(tools: ContainerTools, store: ImageStore, tmp_path: Path) -> None:
    config = RunConfig(entrypoint=["python3", "/opt/train.py"], cmd=["--epochs", "2"], working_dir="/opt")
    program = b"import os, sys; print('trained', sys.argv[1:], os.getcwd())"
    image = add_machine_image(store, "team/trainer:1.0", config=config, files={"opt/train.py": program})

    loaded = podman(tools, "load", "-i", save(store, image, tmp_path / "image.tar"))

    assert "Loaded image: docker.io/team/trainer:1.0" in loaded
    assert podman(tools, "images", "--no-trunc", "--quiet", "docker.io/team/trainer:1.0").strip() == image.id
    assert tools.run_image("docker.io/team/trainer:1.0").stdout == "trained ['--epochs', '2'] /opt\n"


def test_archives_go_to_docker_and_come_back(store: ImageStore, tmp_path: Path) -> None:
    if not docker_files().exists():
        pytest.skip("the files of Debian's package docker.io are not there")
    images = [add_image(store, "team/pulled:1", LAYERS), add_built_image(store, "built", {"a": b"1"})]
    archive, back = tmp_path / "ours.tar", tmp_path / "theirs.tar"
    with archive.open("wb") as file:
        save_archive(store, images, file)

    with running_docker() as docker:
        printed = docker("load", "-i", archive)
        ids = [docker("inspect", "-f", "{{.Id}}", name).strip() for name in ("team/pulled:1", "built")]
        files = docker("image", "inspect", "-f", "{{json .RootFS.Layers}}", "team/pulled:1")
        (tmp_path / "Dockerfile").write_text("FROM team/pulled:1\nCOPY Dockerfile /theirs\nCMD x\n")
        docker("build", "-q", "-t", "theirs", tmp_path)
        docker("save", "-o", back, "theirs", "built")

    assert printed.splitlines() == ["Loaded image: team/pulled:1", "Loaded image: built:latest"]
    assert ids == [image.id for image in images]
    assert json.loads(files) == images[0].config.rootfs.diff_ids
    other = ImageStore(tmp_path / "other")
    with back.open("rb") as stream:
        loaded = {str(image.reference): image for image in load_archive(other, stream)}
    assert loaded["docker.io/library/built:latest"].id == images[1].id
    [top, *_] = UnpackedLayers(other).directories(loaded["docker.io/library/theirs:latest"])
    assert (top / "theirs").read_bytes() == (tmp_path / "Dockerfile").read_bytes()


def test_saved_image_runs_in_containerd(store: ImageStore, tmp_path: Path) -> None:
    if not shutil.which("ctr"):
        pytest.skip("containerd is not installed")
    config = RunConfig(entrypoint=["python3"], cmd=["/opt/train.py"])
    image = add_machine_image(store, "team/trainer:1.0", config=config, files={"opt/train.py": b"print('trained')"})

    with running_containerd(tmp_path / "containerd") as containerd:
        containerd.ctr("images", "import", "--snapshotter", "native", save(store, image, tmp_path / "image.tar"))
        listed = containerd.ctr("images", "ls", "name==docker.io/team/trainer:1.0")
        ran = containerd.ctr("run", "--rm", "--snapshotter", "native", "docker.io/team/trainer:1.0", "trained")

    assert image.descriptor.digest in listed
    assert ran == "trained\n"


@pytest.mark.parametrize("format_", ["docker-archive", "oci-archive"])
def test_archive_of_podman_is_loaded_with_its_id_and_name(
    tools: ContainerTools, store: ImageStore, tmp_path: Path, format_: str
) -> None:
    image = add_image(store, "team/exchanged:2", LAYERS, RunConfig(env=["A=1"], labels={"a": "b"}))
    podman(tools, "load", "-i", save(store, image, tmp_path / "ours.tar"))
    theirs = tmp_path / "theirs.tar"
    podman(tools, "save", "--format", format_, "-o", theirs, "docker.io/team/exchanged:2")

    loaded = load(ImageStore(tmp_path / "other"), theirs)

    assert str(loaded.reference) == "docker.io/team/exchanged:2"
    assert loaded.id == image.id
    assert loaded.config == image.config


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_archive_of_skopeo_with_compressed_layers_is_loaded(
    tools: ContainerTools, store: ImageStore, tmp_path: Path, compression: str
) -> None:
    image = add_image(store, "team/compressed:1", LAYERS)
    theirs = tmp_path / "theirs.tar"
    flags = ("--dest-compress-format", compression, "--dest-compress", "--insecure-policy", "--quiet")
    tools.run("skopeo", "copy", *flags, f"oci:{store.directory}:{image.reference}", f"oci-archive:{theirs}:demo:1")

    loaded = load(ImageStore(tmp_path / "other"), theirs)

    assert str(loaded.reference) == "docker.io/library/demo:1"
    assert loaded.config.rootfs == image.config.rootfs


def test_skopeo_agrees_about_layers_configuration_and_digests(
    tools: ContainerTools, store: ImageStore, tmp_path: Path
) -> None:
    image = add_image(store, "team/inspected:1", LAYERS, RunConfig(env=["A=1"], entrypoint=["/x"], labels={"a": "b"}))
    archive = save(store, image, tmp_path / "image.tar")

    for place in (f"oci:{store.directory}:{image.reference}", f"oci-archive:{archive}"):
        seen = json.loads(tools.inspect(place))
        assert seen["Digest"] == image.descriptor.digest
        assert seen["Layers"] == [layer.digest for layer in image.manifest.layers]
        assert seen["Env"] == ["A=1"]
        assert seen["Labels"] == {"a": "b"}
        config = tools.inspect(place, "--config", "--raw")
        assert json.loads(config) == json.loads(store.blob_path(image.id).read_bytes())
    docker = json.loads(tools.inspect(f"docker-archive:{archive}"))
    assert docker["Layers"] == image.config.rootfs.diff_ids


@pytest.mark.registry
async def test_what_was_built_here_is_the_same_image_for_other_tools(
    tools: ContainerTools, store: ImageStore, tmp_path: Path
) -> None:
    image = add_built_image(store, "team/built:1", {"etc/greeting": b"hello" * 1000})
    archive = save(store, image, tmp_path / "image.tar")

    podman(tools, "load", "-i", archive)  # as an OCI layout
    assert podman(tools, "images", "--no-trunc", "--quiet", "docker.io/team/built:1").strip() == image.id
    podman(tools, "rmi", "docker.io/team/built:1")
    podman(tools, "pull", "--quiet", f"docker-archive:{archive}")  # as `docker load` reads it, by manifest.json
    assert podman(tools, "images", "--no-trunc", "--quiet", "team/built:1").strip() == image.id
    tools.copy(f"docker-archive:{archive}", f"docker-archive:{tmp_path / 'copied.tar'}:team/copied:1")
    assert load(ImageStore(tmp_path / "other"), tmp_path / "copied.tar").config.rootfs == image.config.rootfs

    with running_registry(tmp_path / "registry") as address:
        name = ImageReference.parse(f"{address}/team/built:1")
        pushed = await push_image(store, image, name)
        seen = json.loads(tools.inspect(f"docker://{name}", "--tls-verify=false"))
        tools.run(
            "skopeo",
            "copy",
            "--quiet",
            "--insecure-policy",
            "--src-tls-verify=false",
            f"docker://{name}",
            f"dir:{tmp_path / 'dir'}",
        )

    assert seen["Digest"] == pushed.digest
    assert len(seen["Layers"]) == 1
    layer = gzip.decompress((tmp_path / "dir" / seen["Layers"][0].removeprefix("sha256:")).read_bytes())
    assert digest_of(layer) == image.config.rootfs.diff_ids[0]


@pytest.mark.registry
async def test_registry_between_skopeo_and_us(tools: ContainerTools, store: ImageStore, tmp_path: Path) -> None:
    with running_registry(tmp_path / "registry") as address:
        ours = ImageReference.parse(f"{address}/team/ours:1")
        image = add_image(store, str(ours), LAYERS)
        await push_image(store, image, ours)
        seen = json.loads(tools.inspect(f"docker://{ours}", "--tls-verify=false"))
        flags = (
            "--insecure-policy",
            "--quiet",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
            "--format",
            "v2s2",
        )
        tools.run("skopeo", "copy", *flags, f"docker://{ours}", f"docker://{address}/team/theirs:1")
        theirs = await pull_image(ImageStore(tmp_path / "other"), ImageReference.parse(f"{address}/team/theirs:1"))

    assert seen["Digest"] == image.descriptor.digest
    assert seen["Layers"] == [layer.digest for layer in image.manifest.layers]
    assert theirs.manifest.media_type == "application/vnd.docker.distribution.manifest.v2+json"
    assert [layer.digest for layer in theirs.manifest.layers] == [layer.digest for layer in image.manifest.layers]
    assert theirs.config.rootfs == image.config.rootfs


@pytest.mark.registry
async def test_debians_registry_takes_and_gives_images(store: ImageStore, tmp_path: Path) -> None:
    if not shutil.which("docker-registry"):
        pytest.skip("docker-registry is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_REGISTRY", subprocess.check_output(["which", "docker-registry"], text=True).strip())
        with running_registry(tmp_path / "registry") as address:
            name = ImageReference.parse(f"{address}/team/ours:1")
            image = add_image(store, str(name), LAYERS)
            await push_image(store, image, name)
            pulled = await pull_image(ImageStore(tmp_path / "other"), name)

    assert pulled.digests == image.digests
