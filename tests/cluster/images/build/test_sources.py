"""What `image build` builds from besides a directory: standard input, and addresses."""

import functools
import gzip
import http.server
import io
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images.builder import tar_of
from trainwright.cluster.images.build.messages import BuildError
from trainwright.cluster.images.build.sources import BuildSource, open_source
from trainwright.cluster.images.store import ImageStore

FILES = {"Dockerfile": b"FROM scratch\n", "app/train.py": b"print(1)\n", "app/Dockerfile.gpu": b"FROM gpu\n"}
ARCHIVE = tar_of(FILES)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory, and its address."""
    directory = tmp_path / "served"
    directory.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield directory, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def files(source: BuildSource) -> dict[str, bytes]:
    found = source.context.rglob("*")
    return {str(path.relative_to(source.context)): path.read_bytes() for path in found if path.is_file()}


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_an_archive_on_standard_input_is_the_context(store: ImageStore, compress: type[bytes]) -> None:
    with open_source(store, "-", "app/Dockerfile.gpu", io.BytesIO(compress(ARCHIVE))) as source:
        assert source.dockerfile.read_bytes() == b"FROM gpu\n"
        assert files(source) == FILES

    assert list((store.directory / "tmp").iterdir()) == []


def test_other_text_on_standard_input_is_a_dockerfile_without_a_context(store: ImageStore) -> None:
    with open_source(store, "-", None, io.BytesIO(b"FROM scratch\n")) as source:
        assert source.dockerfile.read_bytes() == b"FROM scratch\n"
        assert source.dockerfile.name == "Dockerfile"
        assert files(source) == {}


def test_a_dockerfile_on_standard_input_reads_the_files_of_a_directory(store: ImageStore, tmp_path: Path) -> None:
    with open_source(store, str(tmp_path), "-", io.BytesIO(b"FROM scratch\n")) as source:
        assert source.dockerfile.read_bytes() == b"FROM scratch\n"
        assert source.context == tmp_path


def test_a_containerfile_is_read_where_there_is_no_dockerfile(store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_bytes(b"FROM podman\n")
    with open_source(store, str(tmp_path), None, io.BytesIO()) as source:
        assert source.dockerfile == tmp_path / "Containerfile"

    (tmp_path / "Dockerfile").write_bytes(b"FROM docker\n")
    with open_source(store, str(tmp_path), None, io.BytesIO()) as source:
        assert source.dockerfile == tmp_path / "Dockerfile"


def test_an_address_is_an_archive_or_a_dockerfile(store: ImageStore, served: tuple[Path, str]) -> None:
    directory, address = served
    (directory / "app.tar.gz").write_bytes(gzip.compress(ARCHIVE))
    (directory / "Dockerfile").write_bytes(b"FROM other\n")

    with open_source(store, f"{address}/app.tar.gz", None, io.BytesIO()) as source:
        assert source.dockerfile.read_bytes() == b"FROM scratch\n"
        assert files(source) == FILES
    with open_source(store, f"{address}/app.tar.gz", "-", io.BytesIO(b"FROM input\n")) as source:
        assert source.dockerfile.read_bytes() == b"FROM input\n"
        assert files(source) == FILES
    with open_source(store, f"{address}/Dockerfile", None, io.BytesIO()) as source:
        assert source.dockerfile.read_bytes() == b"FROM other\n"
        assert files(source) == {}


def test_a_git_address_is_fetched_with_git(store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = tmp_path / "repository"
    (repository / "app").mkdir(parents=True)
    (repository / "app/Dockerfile").write_bytes(b"FROM scratch\n")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q", "-b", "main"), ("add", "."), (*author, "commit", "-qm", "x"), ("tag", "v1")):
        subprocess.run(["git", *words], cwd=repository, check=True)
    address = "https://git.example.com/team/app.git"
    for name, value in {"COUNT": "1", "KEY_0": f"url.{repository}.insteadOf", "VALUE_0": address}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "own"))  # as in a hook

    with open_source(store, f"{address}#v1:app", None, io.BytesIO()) as source:
        assert files(source) == {"Dockerfile": b"FROM scratch\n"}

    assert failure(store, f"{address}#v1:nothing").endswith("app.git has no directory nothing")
    assert "git fetch of https://git.example.com/team/app.git: fatal: " in failure(store, f"{address}#v2")
    secret = failure(store, "https://me:t0ken@127.0.0.1:9/app.git#v1")
    assert secret.startswith("git fetch of https://127.0.0.1:9/app.git: fatal: ")
    assert "t0ken" not in secret
    assert "git fetch" in failure(store, f"{address}#--upload-pack=touch {tmp_path}/own")  # no option of git
    assert not (tmp_path / "own").exists()
    monkeypatch.setenv("PATH", "")
    assert failure(store, address).endswith("the program git is not here: install it, or build from a clone")
    assert list((store.directory / "tmp").iterdir()) == []


def test_what_cannot_be_built_from_is_one_clear_error(store: ImageStore, served: tuple[Path, str]) -> None:
    _, address = served

    assert failure(store, "missing") == (
        "missing is not a directory: name the directory to build from, an address, or -"
    )
    assert failure(store, "-", "-").startswith("standard input cannot be both the context and the Dockerfile")
    assert failure(store, "-", "other", b"FROM scratch").startswith("standard input is no archive, so it is the Docker")
    assert (
        failure(store, "-", "other", ARCHIVE) == "standard input has no file other: name the Dockerfile in it with -f"
    )
    assert failure(store, "-", None, ARCHIVE[:520]).startswith("standard input: ")
    assert "leads out of the layer" in failure(store, "-", None, tar_of({"../Dockerfile": b"FROM x"}))
    assert failure(store, f"{address}/missing.tar").endswith("the server answered 404 File not found")
    assert failure(store, "http://127.0.0.1:9/x").endswith("cannot read http://127.0.0.1:9/x: Connection refused")
    assert list((store.directory / "tmp").iterdir()) == []


def failure(store: ImageStore, context: str, dockerfile: str | None = None, stdin: bytes = b"") -> str:
    with pytest.raises(BuildError) as caught, open_source(store, context, dockerfile, io.BytesIO(stdin)):
        pass
    return str(caught.value)
