"""The commands about images that need no registry."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click.testing
import pytest
import yaml

from tests.support.cluster.disks import fill, small_disk
from tests.support.images.builder import add_image
from trainwright.cli.commands.images.store import created_text, size_text
from trainwright.cli.main import cli
from trainwright.cluster.images.formats import RunConfig
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.store import ImageStore


@dataclass
class Images:
    """Runs `trainwright image ...` on a store of its own."""

    store: ImageStore
    directory: Path

    def __call__(self, *arguments: str, stdin: bytes = b"") -> click.testing.Result:
        words = ["image", *arguments, "--data-dir", str(self.directory)]
        return click.testing.CliRunner().invoke(cli, words, input=stdin)

    def output(self, *arguments: str, stdin: bytes = b"") -> str:
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def error(self, *arguments: str, stdin: bytes = b"") -> str:
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 1, result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.stderr


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(ImageStore(tmp_path / "data" / "images"), tmp_path / "data")


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_ls_has_the_columns_of_docker(images: Images) -> None:
    image = add_image(images.store, "joleedocker/traindb-training-mnist:1.0", created="2020-01-01T00:00:00Z")

    head, row = images.output("ls").splitlines()

    assert head.split("  ")[0] == "REPOSITORY"
    assert head.split() == ["REPOSITORY", "TAG", "IMAGE", "ID", "CREATED", "SIZE"]
    assert row.split()[:3] == ["joleedocker/traindb-training-mnist", "1.0", image.short_id]
    assert " years ago " in row


def test_ls_of_nothing_is_the_head_alone(images: Images) -> None:
    assert lines(images.output("ls")) == [["REPOSITORY", "TAG", "IMAGE", "ID", "CREATED", "SIZE"]]
    assert images.output("ls", "-q") == ""
    assert not images.directory.exists()


def test_ls_selects_and_prints_as_docker_does(images: Images) -> None:
    old = add_image(images.store, "team/one:1", ({"a": b"1"},), created="2020-01-01T00:00:00Z")
    new = add_image(
        images.store, "two", ({"a": b"2"},), RunConfig(labels={"stage": "dev"}), created="2021-01-01T00:00:00Z"
    )
    nameless = add_image(images.store, None, ({"a": b"3"},), created="2019-01-01T00:00:00Z")

    assert images.output("ls", "-q").split() == [new.short_id, old.short_id, nameless.short_id]
    assert images.output("ls", "-q", "--no-trunc", "team/one").split() == [old.id]
    assert images.output("ls", "-q", "team/*:1").split() == [old.short_id]
    assert images.output("ls", "-q", "team/one:2") == ""
    assert images.output("ls", "-q", "--filter", "dangling=true").split() == [nameless.short_id]
    assert images.output("ls", "-q", "-f", "label=stage=dev").split() == [new.short_id]
    assert images.output("ls", "--format", "{{.Repository}}:{{.Tag}}").split() == [
        "two:latest",
        "team/one:1",
        "<none>:<none>",
    ]
    assert images.output("ls", "--digests", "--format", "{{.Digest}}", "two") == "<none>\n"
    assert json.loads(images.output("ls", "-o", "json"))[0]["ID"] == new.short_id
    assert yaml.safe_load(images.output("images", "-o", "yaml"))[1]["Repository"] == "team/one"
    assert images.output("ls", "-q", "-f", "before=two").split() == [old.short_id, nameless.short_id]
    assert images.output("ls", "-q", "-f", f"since={nameless.short_id}", "-f", "before=two").split() == [old.short_id]
    assert "unknown filter 'colour': write dangling=true, " in images.error("ls", "-f", "colour=red")


def test_ls_formats_json_and_tables(images: Images) -> None:
    image = add_image(images.store, "team/demo:1")

    assert json.loads(images.output("ls", "--format", "json"))["ID"] == image.short_id
    assert json.loads(images.output("inspect", "-f", "json", "team/demo:1"))["Id"] == image.id
    assert images.output("ls", "--format", r"table {{.ID}}\t{{.Repository}}:{{.Tag}}").splitlines() == [
        "IMAGE ID       REPOSITORY:TAG",
        f"{image.short_id}   team/demo:1",
    ]


def test_ls_names_damaged_images_and_rm_removes_them(images: Images) -> None:
    image = add_image(images.store, "broken")
    images.store.blob_path(image.id).write_bytes(b"{}")

    result = images("ls")
    assert "Warning: broken:latest is damaged" in result.stderr
    assert "Untagged: broken" in images.output("rm", "broken")
    assert images("ls").stderr == ""


def test_a_digest_belongs_to_the_repository_that_has_it(images: Images) -> None:
    image = add_image(images.store, "demo:1")
    images.store.set_registry_digest(ImageReference.parse("demo:1"), image, f"sha256:{'1' * 64}")

    for name in ("demo:2", "other:1", "other:2"):
        images.output("tag", "demo:1", name)
    images.store.set_registry_digest(ImageReference.parse("other:1"), image, f"sha256:{'2' * 64}")
    images.output("tag", "demo:1", "other:1")

    [document] = json.loads(images.output("inspect", "demo:1"))
    assert document["RepoDigests"] == [f"demo@sha256:{'1' * 64}", f"other@sha256:{'2' * 64}"]
    shown = images.output("ls", "--format", "{{.Repository}}:{{.Tag}} {{.Digest}}").splitlines()
    assert f"demo:2 sha256:{'1' * 64}" in shown
    assert "other:2 <none>" in shown


def test_inspect_prints_the_document_of_docker(images: Images) -> None:
    config = RunConfig(
        entrypoint=["python3", "/opt/train.py"],
        env=["A=1"],
        labels={"dev.trainwright.host-files": "true", "dev.trainwright.skipped": '["apt update"]'},
    )
    image = add_image(images.store, "demo:1", config=config)
    images.output("tag", "demo:1", "other:2")

    [document] = json.loads(images.output("inspect", "demo:1"))

    assert document["Id"] == image.id
    assert document["RepoTags"] == ["demo:1", "other:2"]
    assert document["RepoDigests"] == []
    assert document["Config"]["Entrypoint"] == ["python3", "/opt/train.py"]
    assert document["RootFS"] == {"Type": "layers", "Layers": image.config.rootfs.diff_ids}
    assert document["Architecture"] == "amd64"
    assert document["HostFiles"] is True
    assert document["SkippedRun"] == ["apt update"]
    assert yaml.safe_load(images.output("inspect", image.short_id, "-o", "yaml")) == [document]


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{{.Os}}/{{.Architecture}}", "linux/amd64"),
        ("{{.Config.Cmd}}", "[/bin/sh -c]"),
        ("{{json .Config.Cmd}}", '["/bin/sh", "-c"]'),
        ("{{ .Config.Labels }}", "map[a:1 b:2]"),
        ("{{.Config.Entrypoint}} {{json .Config.Volumes}} {{.HostFiles}}", "[] {} false"),
    ],
)
def test_inspect_with_a_template(images: Images, template: str, printed: str) -> None:
    add_image(images.store, "demo", config=RunConfig(cmd=["/bin/sh", "-c"], labels={"b": "2", "a": "1"}))

    assert images.output("inspect", "-f", template, "demo") == f"{printed}\n"


def test_template_that_is_not_supported_is_named(images: Images) -> None:
    add_image(images.store)

    assert "{{range .Layers}} is not supported" in images.error("inspect", "-f", "{{range .Layers}}", "demo")
    assert "has no field 'Nope': it has Id, " in images.error("inspect", "-f", "{{.Nope}}", "demo")


def test_history_shows_what_made_each_layer(images: Images) -> None:
    image = add_image(images.store, "demo", ({"first.txt": b"1"}, {"second.txt": b"2" * 99}))

    head, second, first = images.output("history", "demo").splitlines()

    assert head.split() == ["IMAGE", "CREATED", "CREATED", "BY", "SIZE", "COMMENT"]
    assert second.startswith(image.short_id)
    assert "COPY second.txt /" in second
    assert first.startswith("<missing>")
    assert "COPY first.txt /" in first


def test_image_that_is_not_there_is_one_line(images: Images) -> None:
    for command in (("inspect", "nope"), ("history", "nope"), ("tag", "nope", "x"), ("rm", "nope"), ("save", "nope")):
        assert images.error(*command).startswith("Error: no such image: nope"), command
    assert "An image does not exist locally with the tag: nope:latest" in images.error("push", "nope")


def test_bad_name_is_one_line(images: Images) -> None:
    add_image(images.store)

    assert "must be lowercase" in images.error("tag", "demo", "Upper")
    assert "must be lowercase" in images.error("pull", "Upper")


def test_rm_untags_and_deletes_as_docker_does(images: Images) -> None:
    image = add_image(images.store)
    images.output("tag", "demo", "other")

    assert images.output("rm", "demo") == "Untagged: demo:latest\n"
    assert images.output("rmi", "other").splitlines() == [
        "Untagged: other:latest",
        *(f"Deleted: {digest}" for digest in sorted(image.digests)),
    ]


def test_rm_by_id_needs_force_for_several_names(images: Images) -> None:
    image = add_image(images.store)
    images.output("tag", "demo", "other")

    assert "image is referenced in multiple repositories" in images.error("rm", image.short_id)
    assert images.output("rm", "-f", image.short_id).count("Untagged: ") == 2
    assert images.store.images() == []


def test_rm_of_nothing_deletes_nothing(images: Images) -> None:
    left_over = images.store.write_blob(b"of an interrupted pull").digest

    assert "Deleted" not in images("rm", "nope").stdout
    assert images.store.has_blob(left_over)


def test_rm_removes_the_others_if_one_is_not_there(images: Images) -> None:
    add_image(images.store)

    assert "no such image: nope" in images.error("rm", "nope", "demo")
    assert images.store.images() == []


def test_image_of_a_pod_is_removed_by_force_alone_and_its_files_stay(images: Images, tmp_path: Path) -> None:
    image = add_image(images.store)
    images.store.pin("pod-0001", [image.descriptor.digest], holder=tmp_path, pod="team/trainer-0")

    assert "pod team/trainer-0 is using this image" in images.error("rm", "demo")
    assert images.output("prune", "-a", "-f").endswith("Total reclaimed space: 0B\n")
    assert images.output("rm", "-f", "demo") == "Untagged: demo:latest\n"
    assert images.store.has_blob(image.id)


def test_prune_removes_images_without_a_name(images: Images) -> None:
    add_image(images.store, "demo", ({"a": b"1"},))
    add_image(images.store, "demo", ({"a": b"2"},))

    assert images("prune", stdin=b"n\n").exit_code == 1
    assert len(images.store.images()) == 2
    printed = images.output("prune", stdin=b"y\n")

    assert "deleted: sha256:" in printed
    assert "Total reclaimed space: " in printed
    assert len(images.store.images()) == 1
    assert "untagged: demo:latest" in images.output("prune", "--all", "--force")
    assert images.store.images() == []


def test_prune_removes_what_passes_the_filters(images: Images) -> None:
    now = datetime.now(UTC).isoformat()
    add_image(images.store, "old", ({"a": b"1"},), RunConfig(labels={"keep": "no"}))
    add_image(images.store, "new", ({"a": b"2"},), RunConfig(labels={"keep": "no"}), created=now)
    add_image(images.store, "kept", ({"a": b"3"},))

    printed = images.output("prune", "-a", "-f", "--filter", "until=1h30m", "--filter", "label=keep=no")

    assert "untagged: old:latest\n" in printed
    assert sorted(images.output("ls", "--format", "{{.Repository}}").split()) == ["kept", "new"]
    # Before it asks, and it asks about the same images.
    assert "invalid filter until=soon: write until=24h or until=2026-" in images.error(
        "prune", "--filter", "until=soon"
    )
    asked = images("prune", "-a", "--filter", "label=keep", stdin=b"n\n").stderr
    assert asked.startswith("WARNING! This will remove all images that no pod uses, if they match label=keep.\n")


def test_df_counts_shared_layers_once(images: Images) -> None:
    one = add_image(images.store, "one", ({"base": b"x" * 5000}, {"a": b"1"}))
    add_image(images.store, "two", ({"base": b"x" * 5000}, {"a": b"2"}))

    rows = json.loads(images.output("df", "-o", "json"))
    table = lines(images.output("df"))

    blobs = sum(path.stat().st_size for path in (images.store.directory / "blobs" / "sha256").iterdir())
    assert rows[0] == {"Type": "Images", "TotalCount": 2, "Active": 0, "Size": blobs, "Reclaimable": blobs}
    assert table[0] == ["TYPE", "TOTAL", "ACTIVE", "SIZE", "RECLAIMABLE"]
    assert table[1][0] == "Images"
    assert table[1][-1] == "(100%)"
    images.store.pin("pod", [one.descriptor.digest], holder=images.directory)
    assert json.loads(images.output("df", "-o", "json"))[0]["Active"] == 1


def test_df_shows_what_each_image_shares(images: Images) -> None:
    one = add_image(images.store, "one", ({"base": b"x" * 5000}, {"a": b"1"}))
    add_image(images.store, "two", ({"base": b"x" * 5000}, {"a": b"2"}))
    images.output("tag", "one", "same")
    images.store.pin("pod", [one.descriptor.digest], holder=images.directory)

    shown = json.loads(images.output("df", "-v", "-o", "json"))["Images"]
    printed = images.output("df", "-v")

    assert {row["Repository"]: row["Pods"] for row in shown} == {"one": 1, "same": 1, "two": 0}
    assert {row["SharedSize"] for row in shown} == {size_text(one.manifest.layers[0].size)}
    assert lines(printed)[2][-5:] == ["SHARED", "SIZE", "UNIQUE", "SIZE", "PODS"]
    assert printed.endswith("\nBuild cache usage: 0B\n")


def test_saved_archive_is_loaded_again(images: Images, tmp_path: Path) -> None:
    image = add_image(images.store, "team/demo:1")
    archive = tmp_path / "demo.tar"

    images.output("save", "-o", str(archive), "team/demo:1")
    piped = click.testing.CliRunner().invoke(cli, ["image", "save", "team/demo:1", "--data-dir", str(images.directory)])
    other = Images(ImageStore(tmp_path / "other" / "images"), tmp_path / "other")

    assert piped.stdout_bytes == archive.read_bytes()
    assert other.output("load", "-i", str(archive)) == "Loaded image: team/demo:1\n"
    assert other.output("load", stdin=archive.read_bytes()) == "Loaded image: team/demo:1\n"
    assert [found.digests for found in other.store.images()] == [image.digests]


def test_save_to_a_full_disk_names_the_file(images: Images, tmp_path: Path) -> None:
    add_image(images.store)
    with small_disk(tmp_path / "disk") as disk:
        fill(disk / "filler")

        assert f"cannot write {disk}/demo.tar: No space left" in images.error("save", "-o", f"{disk}/demo.tar", "demo")
        assert [path.name for path in disk.iterdir()] == ["filler"]


def test_save_that_fails_keeps_the_file_that_was_there(images: Images, tmp_path: Path) -> None:
    image = add_image(images.store)
    images.store.blob_path(image.manifest.layers[0].digest).unlink()
    target = tmp_path / "out" / "demo.tar"
    target.parent.mkdir()
    target.write_text("precious")

    assert "is missing" in images.error("save", "-o", str(target), "demo")
    assert "cannot write /nowhere/x.tar: No such file" in images.error("save", "-o", "/nowhere/x.tar", "demo")
    assert [path.name for path in target.parent.iterdir()] == ["demo.tar"]
    assert target.read_text() == "precious"


def test_load_of_something_else_is_one_line(images: Images, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello" * 500)

    assert "Error: this is no tar archive: " in images.error("load", "-i", str(tmp_path / "text"))
    assert "cannot read " in images.error("load", "-i", str(tmp_path / "absent"))
    assert "cannot read " in images.error("load", "-i", str(tmp_path))
    assert "'solaris' is not a platform" in images.error("load", "--platform", "solaris", "-i", str(tmp_path / "text"))


@pytest.mark.parametrize("command", [("pull", "x"), ("build", ".")])
def test_mirror_that_is_no_address_is_refused(images: Images, command: tuple[str, str]) -> None:
    result = images(*command, "--mirror", "http://bad host")

    assert result.exit_code == 2
    assert (
        "'http://bad host' is not the address of a registry: write HOST, HOST:PORT or http://HOST:PORT" in result.output
    )


def test_words_of_docker_lead_to_the_command() -> None:
    runner = click.testing.CliRunner()

    assert "did you mean `image pull`?" in runner.invoke(cli, ["pull", "x"]).stderr
    assert "did you mean `image ls`?" in runner.invoke(cli, ["images"]).stderr
    assert "did you mean `history`?" in runner.invoke(cli, ["image", "histroy"]).stderr
    assert "available commands: build, ls, " in runner.invoke(cli, ["image", "xyzzy"]).stderr


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0B"), (999, "999B"), (1000, "1kB"), (13_256, "13.3kB"), (195_000_000, "195MB"), (2_620_000_000, "2.62GB")],
)
def test_sizes_as_docker_writes_them(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("created", "text"),
    [
        ("2024-05-06T12:00:00Z", "Less than a second ago"),
        ("2024-05-06T11:59:59Z", "1 second ago"),
        ("2024-05-06T11:59:20Z", "40 seconds ago"),
        ("2024-05-06T11:58:50Z", "About a minute ago"),
        ("2024-05-06T11:30:00.123456789Z", "29 minutes ago"),
        ("2024-05-06T10:40:00Z", "About an hour ago"),
        ("2024-05-06T00:00:00+02:00", "14 hours ago"),
        ("2024-05-01T12:00:00Z", "5 days ago"),
        ("2024-04-01T12:00:00Z", "5 weeks ago"),
        ("2023-06-01T12:00:00Z", "11 months ago"),
        ("2019-06-01T12:00:00Z", "4 years ago"),
        ("0001-01-01T00:00:00Z", "2024 years ago"),
        ("", "N/A"),
        ("yesterday", "N/A"),
    ],
)
def test_ages_as_docker_writes_them(created: str, text: str) -> None:
    assert created_text(created, datetime(2024, 5, 6, 12, tzinfo=UTC)) == text


def test_names_are_mapped_listed_and_removed(images: Images) -> None:
    assert images.output("map") == "No image names are mapped.\n"

    assert images.output("map", "team/*", "--image", "mine:2") == "team/* -> image mine:2\n"
    mapped = images.output("map", "team/a", "--python", "/bin/sh")

    assert mapped == "team/a -> this machine's files with Python /bin/sh\n"
    assert [line.split()[0] for line in images.output("map").splitlines()] == ["PATTERN", "team/*", "team/a"]
    assert images.output("map", "team/*", "--remove") == "team/* is no longer mapped\n"
    assert "'team/*' is not mapped" in images.error("map", "team/*", "--remove")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a",), "either --python or --image"),
        (("a", "--python", "/x", "--image", "b"), "either --python or --image"),
        (("--image", "b"), "PATTERN is missing"),
    ],
)
def test_a_mapping_needs_one_meaning(images: Images, arguments: tuple[str, ...], message: str) -> None:
    result = images("map", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_what_docker_has_elsewhere_is_named(images: Images) -> None:
    assert "unknown command 'run': did you mean `trainwright run --image NAME PROGRAM`?" in images("run", "demo").stderr
    assert "did you mean `trainwright ps`?" in images("ps").stderr
    assert "did you mean `build`?" in images("biuld").stderr


def test_several_images_are_inspected_although_one_is_missing(images: Images) -> None:
    image = add_image(images.store)

    result = images("inspect", "nope", "demo", f"sha256:{image.short_id}")

    assert [document["Id"] for document in json.loads(result.stdout)] == [image.id] * 2
    assert result.stderr == "Error: no such image: nope; `trainwright image ls` lists those that there are\n"
    assert result.exit_code == 1


def test_history_has_templates(images: Images) -> None:
    add_image(images.store)

    assert images.output("history", "-H", "--format", "{{.CreatedBy}}", "demo") == "COPY hello.txt /\n"
    table = lines(images.output("history", "--format", "table {{.Size}}\t{{.Comment}}", "demo"))
    assert table[0] == ["SIZE", "COMMENT"]
