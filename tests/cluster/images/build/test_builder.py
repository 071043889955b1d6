"""Builds on an image of this machine's shell and Python, as a user sees them."""

import hashlib
import http.server
import io
import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.images.build.conftest import BASE, Build
from tests.support.cluster.disks import small_disk
from trainwright.cluster.images.layers.built import BuiltLayers
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import ImageStore


def test_steps_are_printed_as_docker_does(build: Build) -> None:
    build.write("mnist.py", "print(1)")

    image = build(
        f'FROM {BASE}\nRUN echo hello > /out; echo installed\nWORKDIR /var\nADD mnist.py /var\nENTRYPOINT ["python3"]\n'
    )

    assert build.steps == [
        "Step 1/5 : FROM machine",
        " ---> ID",
        "Step 2/5 : RUN echo hello > /out; echo installed",
        " ---> Running in ID",
        "installed",
        "Removing intermediate container ID",
        " ---> ID",
        "Step 3/5 : WORKDIR /var",
        " ---> Running in ID",
        "Removing intermediate container ID",
        " ---> ID",
        "Step 4/5 : ADD mnist.py /var",
        " ---> ID",
        'Step 5/5 : ENTRYPOINT ["python3"]',
        " ---> Running in ID",
        "Removing intermediate container ID",
        " ---> ID",
        "Successfully built ID",
        "Successfully tagged built:latest",
    ]
    assert build.output.splitlines()[-2].split()[-1] == image.short_id
    assert image.config.config.entrypoint == ["python3"]
    assert build.file(image, "/out").read_text() == "hello\n"
    assert build.file(image, "/var/mnist.py").read_text() == "print(1)"


def test_a_second_build_does_nothing_and_says_so(build: Build) -> None:
    build.write("a", "1")
    dockerfile = f"FROM {BASE}\nARG X=1\nENV A=b\nWORKDIR /w\nCOPY a .\nRUN echo $X > x\nCMD x\n"
    first = build(dockerfile)
    index = (build.store.directory / "index.json").stat()

    second = build(dockerfile)

    assert second.id == first.id
    assert build.steps[:-2].count(" ---> Using cache") == 6
    assert not any("Running" in line for line in build.steps)
    assert (build.store.directory / "index.json").stat().st_mtime_ns == index.st_mtime_ns


def test_a_step_runs_again_when_what_it_depends_on_changes(build: Build) -> None:
    file = build.write("a", "1")
    dockerfile = f"FROM {BASE}\nARG X=1\nRUN echo run-1-$X\nCOPY a /a\nRUN echo run-2\n"
    build(dockerfile)

    os.utime(file, (1, 1))
    build(dockerfile)
    assert "run-" not in build.output.replace("RUN echo run-", "")

    file.write_text("2")
    build(dockerfile)
    assert "\nrun-2\n" in build.output
    assert "\nrun-1" not in build.output

    build(dockerfile, build_args={"X": "3"})
    assert "\nrun-1-3\n" in build.output

    build(dockerfile, no_cache=True)
    assert "\nrun-1-1\n" in build.output


def test_instructions_set_the_configuration(build: Build) -> None:
    image = build(
        f"""FROM {BASE}
ARG VERSION=1
ENV PATH=/own:$PATH VERSION=2 QUOTED="a b"
LABEL version=$VERSION single='$VERSION'
EXPOSE 80 53/udp 8000-8001
VOLUME /data "/with$VERSION"
USER 1000:100
WORKDIR /srv
WORKDIR app$VERSION
STOPSIGNAL SIGINT
SHELL ["/bin/sh", "-ec"]
ENTRYPOINT exec top
CMD ["-b"]
"""
    ).config.config

    assert "PATH=/own:" in image.env[0]
    assert image.env[-2:] == ["VERSION=2", "QUOTED=a b"]
    assert image.labels == {"version": "2", "single": "$VERSION"}
    assert list(image.exposed_ports) == ["80/tcp", "53/udp", "8000/tcp", "8001/tcp"]
    assert list(image.volumes) == ["/data", "/with2"]
    assert (image.user, image.working_dir, image.stop_signal) == ("1000:100", "/srv/app2", "SIGINT")
    assert (image.entrypoint, image.cmd) == (["/bin/sh", "-ec", "exec top"], ["-b"])


def test_a_new_entrypoint_drops_the_inherited_cmd(build: Build) -> None:
    image = build(f"FROM {BASE} AS one\nCMD a\nFROM one\nENTRYPOINT b\n")

    assert image.config.config.cmd is None


def test_run_has_environment_user_and_shell(build: Build) -> None:
    build(
        f"""FROM {BASE}
ARG SECRET=s
ENV A=b
WORKDIR /w
RUN echo "$A $SECRET $PWD $HOME $(id -u)"
RUN ["/bin/sh", "-c", "echo exec-$A"]
RUN <<EOF
echo script-$A
EOF
RUN <<EOF
#!/bin/env python3
print("python", 1 + 1)
EOF
RUN cat <<ONE - <<TWO
first
ONE
second
TWO
"""
    )

    printed = [line for line in build.steps if not line.startswith((" --->", "Step", "Removing", "Success"))]
    assert printed[:4] == ["b s /w /root 0", "exec-b", "script-b", "python 2"]
    assert printed[4:] == ["second"]


def test_deleted_files_are_gone_from_the_image(build: Build) -> None:
    build.write("d/a", "a")
    build.write("d/b", "b")

    image = build(f"FROM {BASE}\nCOPY d /d\nRUN rm /d/a && rm -r /bin/../d/b && mkdir /d/b\nRUN ls -a /d; ls -a /d/b\n")

    assert "\n.\n..\nb\n.\n..\n" in build.output
    layer = image.manifest.layers[-1]
    with BuiltLayers(build.store).open(layer) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        assert "d/.wh.a" in archive.getnames()


def test_a_command_that_fails_ends_the_build_and_stores_no_image(build: Build) -> None:
    message = build.failure(f"FROM {BASE}\nRUN echo before\n\nRUN false\n")

    assert message == ("Dockerfile:4:1: RUN false: the command '/bin/sh -c false' returned a non-zero code: 1")
    assert build.store.find(ImageReference.parse("built")) is None
    assert build.failure(f"FROM {BASE}\nRUN no-such-program\n").endswith("non-zero code: 127")
    assert list((build.store.directory / "tmp").iterdir()) == []


def test_quiet_prints_nothing_but_the_output_of_a_failure(build: Build) -> None:
    build(f"FROM {BASE}\nRUN echo quiet-success\n", quiet=True)
    assert build.output == ""

    build.failure(f"FROM {BASE}\nRUN echo the cause; false\n", quiet=True)
    assert build.output == "the cause\n"


def test_stages_are_built_when_they_are_needed(build: Build) -> None:
    dockerfile = f"""ARG NAME=one
FROM {BASE} AS one
RUN mkdir /made && echo 1 > /made/file && python3 -c "import os; os.chown('/made/file', 7, 8)" || true
FROM {BASE} AS unused
RUN false
FROM one AS two
RUN echo 2 > /made/two
FROM scratch AS last
COPY --from=two /made /copied
COPY --from=0 /made/file /made/file
FROM $NAME AS named
"""
    image = build(dockerfile, target="last")

    assert build.steps[-4].startswith(" ---> ") or build.steps[0] == "Step 1/7 : FROM machine AS one"
    assert build.file(image, "/copied/two").read_text() == "2\n"
    assert build.file(image, "/made/file").read_text() == "1\n"
    if os.getuid() == 0:
        assert build.file(image, "/made/file").stat().st_uid == 7
    with pytest.raises(FileNotFoundError):
        build.file(image, "/bin/sh")
    assert "'nothing' is not in the Dockerfile; its stages are one, unused" in build.failure(
        dockerfile, target="nothing"
    )


def test_copy_follows_dockers_rules_for_destinations(build: Build) -> None:
    build.write("dir/one.txt", "1")
    build.write("dir/sub/two.txt", "2", 0o600)
    build.write("run.sh", "#!/bin/sh\n", 0o755)
    (build.context / "link").symlink_to("run.sh")
    (build.context / "dir/inner").symlink_to("/etc/passwd")

    image = build(
        f"""FROM {BASE}
WORKDIR /w
COPY dir made
COPY dir/*.txt run.sh link both/
COPY run.sh renamed
COPY link followed
COPY --chmod=640 --chown=12:34 dir/one.txt /deep/er/file
COPY ["run.sh", "with space/"]
COPY --exclude=sub dir /excluded
COPY --parents dir/sub/two.txt /parents/
COPY <<one.txt <<'two.txt' /here/
value $HOME
one.txt
plain $HOME
two.txt
"""
    )

    def text(path: str) -> str:
        return build.file(image, path).read_text()

    assert text("/w/made/one.txt") == "1"
    assert stat.S_IMODE(build.file(image, "/w/made/sub/two.txt").stat().st_mode) == 0o600
    assert str(build.file(image, "/w/made/inner").readlink()) == "/etc/passwd"
    assert text("/w/both/one.txt") == "1"
    assert stat.S_IMODE(build.file(image, "/w/both/run.sh").stat().st_mode) == 0o755
    assert (
        text("/w/both/link")
        == text("/w/renamed")
        == text("/w/followed")
        == text("/w/with space/run.sh")
        == "#!/bin/sh\n"
    )
    status = build.file(image, "/deep/er/file").stat()
    assert stat.S_IMODE(status.st_mode) == 0o640
    if os.getuid() == 0:
        assert (status.st_uid, status.st_gid) == (12, 34)
        assert build.file(image, "/w/made/one.txt").stat().st_uid == 0
    assert not (build.file(image, "/excluded") / "sub").exists()
    assert text("/parents/dir/sub/two.txt") == "2"
    assert text("/here/one.txt") == "value \n"
    assert text("/here/two.txt") == "plain $HOME\n"


def test_links_of_context_and_image_lead_nowhere_else(build: Build, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (build.context / "out").symlink_to(outside)
    (build.context / "up").symlink_to("../outside/secret")
    build.write("file", "x")

    assert "file not found" in build.failure(f"FROM {BASE}\nCOPY out/secret /x\n")
    assert "file not found" in build.failure(f"FROM {BASE}\nCOPY up /x\n")
    assert "file not found" in build.failure(f"FROM {BASE}\nCOPY ../outside/secret /x\n")
    links = f"import os; os.symlink('{outside}', '/linked'); os.symlink('../../..', '/up')"
    image = build(f'FROM {BASE}\nRUN python3 -c "{links}"\nCOPY file /linked/new\nCOPY file /up/y\n')

    assert sorted(outside.iterdir()) == [outside / "secret"]
    assert build.file(image, f"{outside}/new").read_text() == "x"
    assert build.file(image, "/y").read_text() == "x"


def test_ignored_files_do_not_exist(build: Build) -> None:
    build.write("keep/a", "a")
    build.write("keep/b.pyc", "b")
    build.write("secret", "s")
    build.write(".dockerignore", "secret\n**/*.pyc\n")

    image = build(f"FROM {BASE}\nCOPY . /all/\n")

    assert sorted(path.name for path in build.file(image, "/all").iterdir()) == [".dockerignore", "keep"]
    assert [path.name for path in build.file(image, "/all/keep").iterdir()] == ["a"]
    assert build.failure(f"FROM {BASE}\nCOPY secret /\n") == (
        "Dockerfile:2:1: COPY secret /: file not found in build context or excluded by .dockerignore: "
        "stat secret: file does not exist"
    )


def archive_of(names: list[str], mode: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.uid = 1, 9
            archive.addfile(member, io.BytesIO(b"x"))
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_add_unpacks_archives(build: Build, mode: str) -> None:
    build.write("files.any", archive_of(["a/b", "c"], mode))

    image = build(f"FROM {BASE}\nADD files.any /new\nCOPY files.any /copied\n")

    assert build.file(image, "/new/a/b").read_text() == "x"
    assert build.file(image, "/copied").is_file()
    if os.getuid() == 0:
        assert build.file(image, "/new/c").stat().st_uid == 9


def test_an_archive_cannot_write_elsewhere(build: Build, tmp_path: Path) -> None:
    build.write("bad.tar", archive_of(["../../../../escaped", f"/{tmp_path}/absolute"], "w"))

    try:
        build(f"FROM {BASE}\nADD bad.tar /new/\n")
    except Exception as error:
        assert "escaped" in str(error)  # noqa: PT017

    assert not (tmp_path / "absolute").exists()
    assert not Path("/escaped").exists()


class _Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/missing"):
            self.send_error(404)
            return
        self.send_response(200)
        if self.path.startswith("/cut"):
            self.send_header("Content-Length", "100")
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"content")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()


def test_add_reads_addresses(build: Build, server: str) -> None:
    digest = hashlib.sha256(b"content").hexdigest()

    image = build(f"FROM {BASE}\nADD --checksum=sha256:{digest} {server}/dir/file.txt?x=1 /got/\nADD {server}/b /c\n")

    status = build.file(image, "/got/file.txt").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime) == (0o600, 1704067200)
    assert build.file(image, "/c").read_text() == "content"
    assert "its content has the checksum sha256:" in build.failure(
        f"FROM {BASE}\nADD --checksum=sha256:{'0' * 64} {server}/a /a\n"
    )
    assert "the server answered 404" in build.failure(f"FROM {BASE}\nADD {server}/missing /a\n")
    assert "/cut: the server sent 7 of 100 bytes" in build.failure(f"FROM {BASE}\nADD {server}/cut /a\n")
    refused = build.failure(f"FROM {BASE}\nADD http://127.0.0.1:9/a /a\n")
    assert refused.endswith("cannot read http://127.0.0.1:9/a: Connection refused")


def test_a_full_disk_is_named_and_leaves_nothing(build: Build, tmp_path: Path) -> None:
    build.write("large", os.urandom(20 << 20))
    with small_disk(tmp_path / "disk") as disk:
        store = ImageStore(disk / "images")

        for line in ("COPY large /large", "ADD . /all/"):
            message = replace(build, store=store).failure(f"FROM scratch\n{line}\n")

            assert (
                f"no space left in {store.directory}: free some, for example with `trainwright image prune`" in message
            )
        assert list((store.directory / "tmp").iterdir()) == []
        assert list(store.layers.iterdir()) == []


def test_a_build_sees_neither_this_machine_nor_its_processes(build: Build, tmp_path: Path) -> None:
    marker = tmp_path / "on-the-host"
    marker.write_text("x")

    build(f"FROM {BASE}\nRUN test ! -e {marker}; set -- /proc/[0-9]*; echo processes: $#; echo x > /etc/made\n")

    assert "\nprocesses: " in build.output
    assert int(build.output.partition("\nprocesses: ")[2].split()[0]) < 6
    assert not Path("/etc/made").exists()


def test_what_is_missing_or_wrong_is_one_clear_error(build: Build, tmp_path: Path) -> None:
    assert build.failure("FROM a\nRNU x") == "Dockerfile:2:1: unknown instruction: RNU (did you mean RUN?)"
    assert "is not the name of an image" in build.failure("FROM Bad:::\n")
    assert build.failure(f"FROM {BASE}\nCOPY --from=nothing /a /b\n").endswith(
        "nothing is neither a stage nor an image of the store, and no registry answers"
    )
    assert "unable to find user nobody-here" in build.failure(f"FROM {BASE}\nCOPY --chown=nobody-here . /x\n")
    assert "invalid port" in build.failure(f"FROM {BASE}\nEXPOSE http\n")
    assert "invalid signal: 'SIGTREM'" in build.failure(f"FROM {BASE}\nSTOPSIGNAL SIGTREM\n")
    assert "should be octal" in build.failure(f"FROM {BASE}\nCOPY --chmod=9 . /x\n")
    assert "does not exist; name another with -f" in build.failure(f"FROM {BASE}", path=tmp_path / "missing")
    assert "is not a directory" in build.failure(f"FROM {BASE}", context=tmp_path / "missing")


def test_an_image_without_a_path_gets_dockers(build: Build) -> None:
    default = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    image = build("FROM scratch AS one\nENV A=b\nFROM one\nENV PATH=/opt/bin:$PATH\n")

    assert image.config.config.env == [f"PATH=/opt/bin:{default}", "A=b"]
