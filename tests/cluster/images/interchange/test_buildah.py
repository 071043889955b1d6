"""The same Dockerfiles and contexts with buildah, and images that are exchanged with podman."""

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.images.tools import REASON, ContainerTools, are_wanted, debian_base
from trainwright.cluster.images.archives import load_archive, save_archive
from trainwright.cluster.images.build.command import build_image
from trainwright.cluster.images.build.messages import BuildError, Progress
from trainwright.cluster.images.build.options import BuildOptions, Unreachable
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import Image, ImageStore

pytestmark = [
    pytest.mark.images,
    pytest.mark.skipif(not are_wanted(), reason=REASON),
]

CONFIGURATIONS = {
    "environment": 'ENV A=1 B="two words" C=th\\ ree\nENV D four  five\nENV E=$A-${B:-x}-${F:-unset}-${A:+set}',
    "single quotes": "ENV A=1\nENV G='$A' H='a b'\"$A c\"",
    "labels": 'LABEL a.b="c d" "e f"=g\nLABEL one=\'t"w"o\' multi=a\\\n b=c',
    "commands": 'CMD ["a", "b c"]\nENTRYPOINT ["x"]\nCMD echo hi "there" $HOME',
    "ports": "EXPOSE 80 443/tcp 53/udp\nARG P=99\nEXPOSE $P",
    "paths": 'WORKDIR /a\nWORKDIR b/../c\nENV D=deep\nWORKDIR $D/x\nVOLUME /v ["/not json\nUSER me:you',
    "volumes": 'VOLUME ["/a", "/b c"]\nVOLUME /d /e',
    "arguments": "ARG A=1\nARG B=${A}2\nENV C=$B\nARG A=3\nENV D=$A\nENV A=env\nENV E=$A",
    "continuation": "ENV A=1 \\\n  # comment\n  B=2 \\\n\n  C=3\nSTOPSIGNAL SIGINT",
    "quotes": 'ENV A="a\'b" B=\'c"d\' C="e\\"f" D=g\\\'h E="\\$A" F=\\$A G="a\\b"',
    "unset": "ENV A=$UNSET B=${UNSET}x C=a$ D=\nLABEL x=$UNSET",
}
IGNORES = {
    "names": "a.txt\nsub\n",
    "globs": "*.txt\n**/*.pyc\n",
    "exceptions": "*\n!sub\n!a.txt\nsub/deep\n",
    "order": "sub/*\n!sub/b.txt\nsub/b.*\n!sub/b.pyc",
    "slashes": "/a.txt\nsub/\n./c d\n",
    "classes": "[ab].txt\n?.md\nsub/[^b]*",
    "comments": "# a.txt\n\n   d.md  \n\\#x",
    "doublestar": "**/deep\nsub/**\n!sub/deep/e.txt",
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerTools]:
    tools = ContainerTools(tmp_path_factory.mktemp("containers"))
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("store"))


def build_here(store: ImageStore, context: Path, name: str) -> Image:
    options = BuildOptions(dockerfile=context / "Dockerfile", context=context, tags=[ImageReference.parse(name)])
    return build_image(store, options, lambda *_: Unreachable("no registry is asked"), Progress(quiet=True))


def saved_layout(store: ImageStore, image: Image, directory: Path) -> Path:
    """The OCI layout that `image save` writes."""
    buffer = io.BytesIO()
    save_archive(store, [image], buffer)
    buffer.seek(0)
    with tarfile.open(fileobj=buffer) as archive:
        archive.extractall(directory, filter="data")
    return directory


def _name(case: str) -> str:
    return case.replace(" ", "-")


def config_there(tools: ContainerTools, name: str) -> dict[str, Any]:
    return dict(json.loads(tools.inspect(tools.storage_name(name), "--config"))["config"])


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_instructions_mean_the_same(case: str, tools: ContainerTools, store: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM scratch\nCOPY Dockerfile /\n{CONFIGURATIONS[case]}\n")
    there = tools.build(_name(case), tmp_path, check=False)

    if there.returncode:
        with pytest.raises(BuildError):
            build_here(store, tmp_path, _name(case))
        return
    here = json.loads(build_here(store, tmp_path, _name(case)).config.encode())["config"]

    expected = config_there(tools, _name(case))
    for key in ("Env", "Labels", "Cmd", "Entrypoint", "ExposedPorts", "Volumes", "WorkingDir", "User", "StopSignal"):
        theirs, ours = expected.get(key), here.get(key)
        if key == "Labels":
            theirs = {name: value for name, value in (theirs or {}).items() if not name.startswith("io.buildah")}
        assert (key, ours or None) == (key, theirs or None)


@pytest.mark.parametrize("case", IGNORES)
def test_the_same_files_are_ignored(case: str, tools: ContainerTools, store: ImageStore, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c d", "d.md", "#x", "sub/b.txt", "sub/b.pyc", "sub/deep/e.txt", "sub/deep/f.pyc"):
        path = tmp_path / "context" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "context/Dockerfile").write_text("FROM scratch\nCOPY . /all/\n")
    (tmp_path / "context/.dockerignore").write_text(IGNORES[case])
    tools.build(f"ignore-{case}", tmp_path / "context")
    tools.copy(tools.storage_name(f"ignore-{case}"), f"oci:{tmp_path / 'layout'}:x")

    here = build_here(store, tmp_path / "context", f"ignore-{case}")

    assert files_in_layout(saved_layout(store, here, tmp_path / "here")) == files_in_layout(tmp_path / "layout")


def files_of(layout: Path, digests: list[str]) -> set[str]:
    found: set[str] = set()
    for digest in digests:
        data = (layout / "blobs/sha256" / digest.partition(":")[2]).read_bytes()
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            found |= {member.name.rstrip("/") for member in archive if not member.isdir()}
    return found


def files_in_layout(layout: Path) -> set[str]:
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())
    return files_of(layout, [layer["digest"] for layer in manifest["layers"]])


def test_files_get_the_same_owners_modes_and_places(tools: ContainerTools, store: ImageStore, tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "dir/sub").mkdir(parents=True, mode=0o750)
    (context / "dir/one").write_text("1")
    (context / "dir/sub/two").write_text("2")
    (context / "dir/sub/two").chmod(0o711)
    (context / "dir/link").symlink_to("one")
    with tarfile.open(context / "files.tar.gz", "w:gz") as archive:
        archive.add(context / "dir", "packed")
    (context / "Dockerfile").write_text(
        "FROM scratch AS one\nCOPY dir /into/new\nCOPY dir/one /file\nCOPY dir/* /star/\n"
        "COPY --chown=3:4 --chmod=600 dir/one /o/wned\nADD files.tar.gz /unpacked\nADD dir/one /into/\n"
        "FROM scratch\nCOPY --from=one / /\nCOPY --from=one /o/wned /again\n"
    )
    tools.build("places", context)
    tools.copy(tools.storage_name("places"), f"oci:{tmp_path / 'layout'}:x")

    saved = saved_layout(store, build_here(store, context, "places"), tmp_path / "here")

    assert listing(saved) == listing(tmp_path / "layout")


def listing(layout: Path) -> dict[str, tuple[Any, ...]]:
    """All files of an image with what its layers say about them."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads((layout / "blobs/sha256" / index["manifests"][0]["digest"][7:]).read_text())
    found: dict[str, tuple[Any, ...]] = {}
    for layer in manifest["layers"]:
        with tarfile.open(layout / "blobs/sha256" / layer["digest"][7:]) as archive:
            for one in archive:
                name = one.name.strip("/")
                if name in {"", ".", "proc", "sys", "dev", "run", "etc"}:
                    continue
                found[name] = (one.type, oct(one.mode & 0o7777), one.uid, one.gid, one.size, one.linkname)
    return found


def test_an_image_built_here_on_a_real_base_runs_in_podman(
    tools: ContainerTools, store: ImageStore, tmp_path: Path
) -> None:
    shutil.copy(debian_base(), tmp_path / "base.tar")
    (tmp_path / "program.py").write_text("import platform, sys\nprint('from podman', sys.argv[1:], __file__)\n")
    (tmp_path / "Dockerfile").write_text(
        "FROM scratch AS debian\nADD base.tar /\n"
        "FROM debian\nWORKDIR /app\nCOPY program.py .\n"
        "RUN rm /etc/motd && useradd -m trainer && echo made > /app/made\n"
        'USER trainer\nENTRYPOINT ["python3", "/app/program.py"]\nCMD ["by default"]\n'
    )

    image = build_here(store, tmp_path, "debian-app")
    saved = saved_layout(store, image, tmp_path / "saved")
    tools.copy(f"oci:{saved}:docker.io/library/debian-app:latest", tools.storage_name("debian-app"))

    assert tools.run_image("debian-app").stdout == "from podman ['by default'] /app/program.py\n"
    shown = json.loads(tools.inspect(tools.storage_name("debian-app")))
    assert len(shown["Layers"]) == len(image.manifest.layers)
    there = json.loads(tools.inspect(f"oci:{saved}:docker.io/library/debian-app:latest"))
    assert there["Layers"] == [layer.digest for layer in image.manifest.layers]
    assert there["Digest"] == image.descriptor.digest


def test_an_image_built_by_buildah_is_a_base_here(
    tools: ContainerTools, store: ImageStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    context = tmp_path / "there"
    context.mkdir()
    shutil.copy(debian_base(), context / "base.tar")
    (context / "Dockerfile").write_text(
        "FROM scratch\nADD base.tar /\nENV FROM_BUILDAH=yes\nRUN rm /etc/motd && mkdir /data && echo x > /data/file\n"
    )
    tools.build("by-buildah", context)
    tools.copy(tools.storage_name("by-buildah"), f"oci-archive:{tmp_path / 'image.tar'}:by-buildah:latest")
    with (tmp_path / "image.tar").open("rb") as archive:
        load_archive(store, archive)
    here = tmp_path / "here"
    here.mkdir()
    (here / "Dockerfile").write_text(
        "FROM by-buildah\nRUN test ! -e /etc/motd && cat /data/file && echo $FROM_BUILDAH && python3 --version\n"
    )

    options = BuildOptions(dockerfile=here / "Dockerfile", context=here, strict=True)
    build_image(store, options, lambda *_: Unreachable("no registry is asked"), Progress())

    assert "\nx\nyes\nPython 3.11" in capfd.readouterr().out
