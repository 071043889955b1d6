import os
from pathlib import Path

import pytest

from tests.support.images.builder import add_image
from tests.support.images.machine_image import MARK, PATH, add_machine_image
from trainwright.cluster.images.layers.image_root import Bind, ImageRoot, run_in_image_root, written
from trainwright.cluster.images.layers.namespace import run_as_container_root
from trainwright.cluster.images.layers.unpack import LayerError
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.store import Image, ImageStore


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def image(store: ImageStore) -> Image:
    return add_machine_image(store)


def run(
    layers: list[Path], script: str, directory: Path, *, binds: tuple[Bind, ...] = (), host_files: bool = False
) -> int:
    """The exit status of a shell script."""

    def execute() -> None:
        output = os.open("/output/text", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve("/bin/sh", ["sh", "-c", script], {"PATH": PATH})  # noqa: S606

    (directory / "output").mkdir()
    (directory / "scratch").mkdir()
    all_binds = (Bind(str(directory / "output"), "/output", read_only=False), *binds)
    paths = [str(layer) for layer in layers]
    root = ImageRoot(layers=paths, scratch=str(directory / "scratch"), binds=all_binds, host_files=host_files)
    status = run_as_container_root(lambda: run_in_image_root(root, execute))
    return os.waitstatus_to_exitcode(status)


def test_a_program_sees_the_files_of_the_image_alone(store: ImageStore, image: Image, tmp_path: Path) -> None:
    layers = UnpackedLayers(store).directories(image)

    code = run(layers, f"cat {MARK}; id -u; python3 -c 'import json, sys; print(sys.prefix)'; ls /; exit 3", tmp_path)

    assert code == 3
    assert (tmp_path / "output/text").read_text().split("\n")[:3] == ["machine image", "0", "/opt/python"]
    assert "usr" not in (tmp_path / "output/text").read_text().split()


def test_what_it_writes_is_in_the_upper_directory(store: ImageStore, image: Image, tmp_path: Path) -> None:
    layers = UnpackedLayers(store).directories(image)

    assert run(layers, f"echo new > /new; rm {MARK}", tmp_path) == 0

    [(upper, path)] = written(str(tmp_path / "scratch"))
    assert path == "/"
    assert Path(upper, "new").read_text() == "new\n"
    assert Path(upper + MARK).is_char_device()
    assert Path(f"{layers[-1]}{MARK}").is_file()


def test_it_has_processes_of_its_own_and_the_bound_files(store: ImageStore, image: Image, tmp_path: Path) -> None:
    layers = UnpackedLayers(store).directories(image)
    shared = tmp_path / "shared"
    shared.write_text("shared")

    code = run(layers, "cat /a/b; echo $$; echo x > /a/b || exit 7", tmp_path, binds=(Bind(str(shared), "/a/b"),))

    assert code == 7
    assert (tmp_path / "output/text").read_text().startswith("shared1\n")
    assert shared.read_text() == "shared"


def test_layers_lie_over_the_files_of_this_machine(store: ImageStore, tmp_path: Path) -> None:
    files = {"app/program": b"of the image", "etc/own": b"1"}
    layers = UnpackedLayers(store).directories(add_image(store, "over", (files,)))

    code = run(layers, "cat /app/program; test -e /etc/passwd && echo x > /app/new", tmp_path, host_files=True)

    assert code == 0
    assert (tmp_path / "output/text").read_text() == "of the image"
    places = {path: upper for upper, path in written(str(tmp_path / "scratch"))}
    assert Path(places["/app"], "new").exists()
    assert not Path("/app/new").exists()
    assert not Path("/etc/own").exists()


def test_an_error_of_the_root_directory_is_raised(store: ImageStore, tmp_path: Path) -> None:
    layers = UnpackedLayers(store).directories(add_image(store, "wrong", ({"proc": b"a file"},)))

    with pytest.raises(OSError, match="/proc of the image is not a directory"):
        run(layers, "true", tmp_path)


def test_layers_are_unpacked_once_and_found_again(store: ImageStore) -> None:
    image = add_image(store, "twice", ({"a": b"1"}, {"b": b"2"}, {"a": b"1"}))
    layers = UnpackedLayers(store)

    assert layers.find(image) is None
    found = layers.directories(image)

    assert [sorted(path.name for path in layer.iterdir()) for layer in found] == [["a"], ["b"]]
    assert layers.find(image) == found
    assert not list((store.directory / "tmp").iterdir())


def test_a_damaged_layer_leaves_nothing_behind(store: ImageStore) -> None:
    image = add_image(store, "damaged", ({"a": b"of the damaged"},))
    blob = store.blob_path(image.manifest.layers[0].digest)
    blob.chmod(0o600)
    blob.write_bytes(blob.read_bytes()[:-12])

    with pytest.raises(LayerError, match=r"layer sha256:\w+ was changed: the gzip data is truncated.*pull it again"):
        UnpackedLayers(store).directories(image)

    assert UnpackedLayers(store).find(image) is None
    assert not blob.exists()
    assert not list((store.directory / "tmp").iterdir())
