"""`RUN --mount` on an image of this machine's shell and Python."""

import socket
from pathlib import Path

import pytest

from tests.cluster.images.build.conftest import BASE, Build
from trainwright.cluster.images.layers.unpacked import UnpackedLayers

SECRET = b"hunter2-of-the-registry"


def test_mounts_of_run_leave_nothing_in_the_image(build: Build) -> None:
    build.write("data", "from context")
    cache = f"--mount=type=cache,id={build.context},target=/cache"

    image = build(
        f"""FROM {BASE} AS other
RUN echo tool > /tool
FROM {BASE}
RUN {cache} echo kept > /cache/file
RUN {cache} --mount=target=/ctx --mount=from=other,source=/tool,target=/t/tool --mount=type=tmpfs,target=/mem \\
    cat /cache/file /ctx/data /t/tool && touch /mem/x && ! touch /ctx/new
"""
    )

    assert "kept\nfrom contexttool\n" in build.output
    for path in ("/cache/file", "/ctx/data", "/t", "/mem/x"):
        with pytest.raises(FileNotFoundError):
            build.file(image, path)


def test_a_secret_is_seen_by_its_command_alone(build: Build) -> None:
    dockerfile = f"""FROM {BASE}
LABEL of={build.context}
RUN --mount=type=secret,id=token ls -ln /run/secrets/token && read x < /run/secrets/token; echo ${{#x}} > /length
RUN --mount=type=secret,id=token,target=/root/.netrc,mode=0444,required cat /root/.netrc && ls -ln /root/.netrc
RUN --mount=type=secret,id=token,env=TOKEN test -n "$TOKEN" -a ! -e /run/secrets/token
RUN test ! -e /run/secrets && test ! -e /root/.netrc && test -z "$TOKEN" && echo gone
"""

    image = build(dockerfile, secrets={"token": SECRET})

    assert "\n-r-------- 1 0 0 " in build.output
    assert f"{SECRET.decode()}-r--r--r-- 1 0 0 " in build.output
    assert "\ngone\n" in build.output
    assert build.file(image, "/length").read_text() == f"{len(SECRET)}\n"
    for layer in UnpackedLayers(build.store).directories(image)[:-1]:
        assert {path.name for path in layer.rglob("*")} <= {"length", "run", "root"}
    documents = (path for path in build.store.directory.rglob("*") if path.is_file() and path.stat().st_size < 1 << 20)
    assert not [path for path in documents if SECRET in path.read_bytes()]

    build(dockerfile, secrets={"token": b"another"})
    assert "Running in" not in build.output
    build(dockerfile.replace("id=token", "id=other"), secrets={"other": SECRET})
    assert "Running in" in build.output


def test_a_secret_that_is_not_given_is_absent_unless_it_is_required(build: Build) -> None:
    absent = f"FROM {BASE}\nRUN --mount=type=secret,id=token test ! -e /run/secrets/token; echo {build.context}\n"
    required = f"FROM {BASE}\nRUN --mount=type=secret,id=token,required cat /run/secrets/token\n"

    build(absent)

    assert build.failure(required).endswith(
        "secret token: not found; give it to the build with --secret id=token,src=FILE"
    )


def test_a_bind_of_the_context_is_what_copy_would_see(build: Build, tmp_path: Path) -> None:
    file = build.write("app/main.py", "1")
    build.write("app/key.pem")
    build.write("data/big/x")
    build.write("data/kept")
    build.write(".dockerignore", "**/*.pem\ndata/*\n!data/kept\n")
    dockerfile = f"FROM {BASE}\nRUN --mount=target=/ctx cd /ctx && echo app/* data/* && cat app/main.py\n"

    build(dockerfile)
    assert "\napp/main.py data/kept\n1" in build.output
    build(dockerfile)
    assert "Using cache" in build.output

    file.write_text("2")
    build(dockerfile)
    assert "\napp/main.py data/kept\n2" in build.output


def test_what_is_written_to_a_bind_is_dropped(build: Build) -> None:
    build.write("setup.py", "1")

    image = build(
        f"FROM {BASE}\nRUN --mount=target=/src,rw cd /src && echo 2 > setup.py && mkdir b && cat setup.py > /out\n"
    )

    assert build.file(image, "/out").read_text() == "2\n"
    assert [path.name for path in build.context.iterdir()] == ["setup.py"]
    assert (build.context / "setup.py").read_text() == "1"
    with pytest.raises(FileNotFoundError):
        build.file(image, "/src")


def test_a_cache_has_the_mode_that_it_was_made_with(build: Build) -> None:
    build(f"FROM {BASE}\nRUN --mount=type=cache,id={build.context},target=/c,mode=1777,sharing=locked ls -lnd /c\n")

    assert "\ndrwxrwxrwt " in build.output


def test_an_ssh_agent_is_reached_through_its_socket(build: Build, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(tmp_path / "agent"))
        agent.listen()
        script = "import os, socket; print(socket.socket(socket.AF_UNIX).connect(os.environ['SSH_AUTH_SOCK']))"
        line = f'RUN --mount=type=ssh python3 -B -c "{script}"'

        image = build(f"FROM {BASE}\n{line}\n", ssh={"default": str(tmp_path / "agent")})

    assert "\nNone\n" in build.output
    with pytest.raises(FileNotFoundError):
        build.file(image, "/run/buildkit")
    build(f"FROM {BASE}\nRUN --mount=type=ssh echo {tmp_path} $SSH_AUTH_SOCK\n")
    assert "[Warning] --mount=type=ssh is absent: --ssh default gives the build your SSH agent" in build.output


def test_without_a_network_there_is_a_loopback_device_alone(build: Build) -> None:
    count = "python3 -B -c 'import socket; print(socket.if_nameindex())'"

    build(f"FROM {BASE}\nRUN --network=none {count}\n")
    assert "\n[(1, 'lo')]\n" in build.output
    build(f"FROM {BASE}\nRUN {count}; echo {build.context}\n", network="none")
    assert "\n[(1, 'lo')]\n" in build.output


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ("type=secret", "requires an id"),
        ("type=cache,target=/c,from=other", "begins empty here: from= and source= are not supported"),
        ("type=tmpfs,target=/t,size=much", "size is a number of bytes"),
        ("type=secret,id=a,mode=9", "mode=9 is not an octal mode"),
        ("type=cache,target=/c,uid=me", "uid=me is not a number"),
        ("type=ssh,required", "no SSH agent default: give it to the build with --ssh default"),
        (
            "target=/c,source=no",
            "file not found in build context or excluded by .dockerignore: --mount of no",
        ),
    ],
)
def test_a_mistake_in_a_mount_names_its_line(build: Build, mount: str, message: str) -> None:
    failure = build.failure(f"FROM {BASE}\nRUN --mount={mount} true\n")

    assert failure.startswith("Dockerfile:2:1: ")
    assert message in failure
