"""Dockerfiles without RUN that nobody would write: an image or one clear error, and no file outside of the store."""

import io
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.images.build.command import build_image
from trainwright.cluster.images.build.messages import BuildError, Progress
from trainwright.cluster.images.build.options import BuildOptions, Unreachable
from trainwright.cluster.images.store import ImageStore

_paths = st.sampled_from(
    [
        *(
            "a",
            "dir",
            "dir/",
            "dir/*",
            "*",
            ".",
            "/",
            "..",
            "../outside",
            "/etc",
            "link",
            "link/x",
            "loop",
            "up/outside",
        ),
        *(
            "/a/../../b",
            "$A",
            "${A:-x}",
            "'a b'",
            '"',
            "missing",
            "[",
            "<<E",
            "",
            "\\",
            "archive.tar",
            "/dev/null",
            "é",
        ),
        *("/x/y/z/", "/proc/self/root/tmp/escaped", "/archive-made/link/escaped"),
    ]
)
_flags = st.sampled_from(
    [
        "",
        "--chown=0:0",
        "--chown=x",
        "--chmod=777",
        "--chmod=x",
        "--from=one",
        "--from=0",
        "--from=9",
        "--parents",
        "--x",
    ]
)
_lines = st.one_of(
    st.builds(
        lambda word, flag, paths: f"{word} {flag} {' '.join(paths)}",
        st.sampled_from(["COPY", "ADD"]),
        _flags,
        st.lists(_paths, min_size=1, max_size=3),
    ),
    st.builds(
        lambda word, path: f"{word} {path}",
        st.sampled_from(
            ["WORKDIR", "VOLUME", "USER", "ENV", "ENV A", "LABEL", "EXPOSE", "ARG", "CMD", "STOPSIGNAL", "SHELL"]
        ),
        _paths,
    ),
    st.sampled_from(
        ["FROM scratch AS one", "FROM one", "FROM 0", "COPY <<E /here\ntext $A\nE", "ENV A=b", "nonsense", "# x"]
    ),
)


@dataclass(frozen=True)
class World:
    store: ImageStore
    context: Path
    outside: Path


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        context = top / "context"
        (context / "dir/sub").mkdir(parents=True)
        for file in ("a", "a b", "dir/x", "dir/sub/y"):
            (context / file).write_text(file)
        (context / "link").symlink_to("dir")
        (context / "loop").symlink_to("loop")
        (context / "up").symlink_to(top)
        with tarfile.open(context / "archive.tar", "w") as archive:
            for path, target in (("archive-made/link", str(top)), ("archive-made/up", "../../../..")):
                member = tarfile.TarInfo(path)
                member.type, member.linkname = tarfile.SYMTYPE, target
                archive.addfile(member)
            member = tarfile.TarInfo("archive-made/link/escaped")
            archive.addfile(member, io.BytesIO())
        (top / "outside").write_text("outside")
        yield World(ImageStore(top / "store"), context, top)


@given(lines=st.lists(_lines, max_size=6))
def test_any_dockerfile_is_built_or_refused(world: World, lines: list[str]) -> None:
    dockerfile = world.outside / "Dockerfile"
    dockerfile.write_text("\n".join(["FROM scratch AS one", "COPY a /made", *lines]))
    options = BuildOptions(dockerfile=dockerfile, context=world.context, strict=True)

    try:
        build_image(world.store, options, lambda *_: Unreachable("no registry is asked"), Progress(quiet=True))
    except BuildError as error:
        message = str(error)
    else:
        message = "built"

    assert message
    assert "Traceback" not in message
    assert sorted(path.name for path in world.outside.iterdir()) == ["Dockerfile", "context", "outside", "store"]
    assert (world.outside / "outside").read_text() == "outside"
    assert not Path("/tmp/escaped").exists()
