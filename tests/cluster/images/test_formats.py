import msgspec
import pytest

from trainwright.cluster.images.formats import (
    DOCKER_LIST,
    OCI_MANIFEST,
    Descriptor,
    FormatError,
    ImageConfig,
    Index,
    Manifest,
    Platform,
    decode_manifest_or_index,
)

DIGEST = "sha256:" + "0" * 64


def index_of(*platforms: str | None) -> Index:
    entries = [
        Descriptor(digest=f"sha256:{number:064x}", size=1, platform=Platform.parse(text) if text else None)
        for number, text in enumerate(platforms)
    ]
    return Index(schema_version=2, manifests=entries)


def test_nulls_of_docker_are_absent_values() -> None:
    config = ImageConfig.decode(
        b'{"architecture": "amd64", "os": "linux", "config": {"Env": null, "Entrypoint": null, "Volumes": null},'
        b' "history": null, "rootfs": {"type": "layers", "diff_ids": null}}'
    )

    assert config.config.env == []
    assert config.config.entrypoint is None
    assert config.rootfs.diff_ids == []
    assert config.history == []


def test_fields_that_are_not_known_survive_a_change() -> None:
    config = ImageConfig.decode(
        b'{"os": "linux", "os.version": "1", "container": "abc", "config": {"User": "1", "ArgsEscaped": true}}'
    )

    config.config.user = "2"
    written = msgspec.json.decode(config.encode())

    assert written == {
        "os": "linux",
        "os.version": "1",
        "container": "abc",
        "config": {"User": "2", "ArgsEscaped": True},
        "rootfs": {"type": "layers", "diff_ids": []},
    }


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"<html>", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": ' + b"[" * 100_000, "not JSON"),
        (b"[]", "Expected `object`"),
        (b'{"config": {"Env": 3}}', "Expected `array`, got `int`"),
        (b'{"rootfs": {"diff_ids": ["../../etc"]}}', "is not a digest"),
    ],
)
def test_bad_configuration_is_one_sentence(data: bytes, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        ImageConfig.decode(data)


def test_layer_named_by_something_else_than_a_digest_is_refused() -> None:
    data = (
        b'{"config": {"digest": "%s", "size": 2}, "layers": [{"digest": "sha256:../x", "size": 1}]}' % DIGEST.encode()
    )

    with pytest.raises(FormatError, match="not a digest"):
        Manifest.decode(data)


def test_old_schema_is_named() -> None:
    with pytest.raises(FormatError, match="schema 1"):
        decode_manifest_or_index(b'{"schemaVersion": 1, "fsLayers": []}', "application/json")


def test_document_is_what_its_own_media_type_says() -> None:
    index = b'{"schemaVersion": 2, "mediaType": "%s", "manifests": []}' % DOCKER_LIST.encode()

    assert isinstance(decode_manifest_or_index(index, OCI_MANIFEST), Index)
    assert isinstance(decode_manifest_or_index(b'{"manifests": []}', "text/plain; charset=utf-8"), Index)


@pytest.mark.parametrize(
    ("offered", "wanted", "chosen"),
    [
        (("linux/arm64", "linux/amd64"), "linux/amd64", 1),
        (("linux/amd64", "linux/arm64/v8"), "linux/arm64", 1),
        (("linux/arm/v6", "linux/arm/v7"), "linux/arm/v7", 1),
        (("linux/arm/v6", "linux/amd64"), "linux/arm/v7", 0),
        (("unknown/unknown", "linux/amd64"), "linux/x86_64", 1),
        ((None,), "linux/amd64", 0),
    ],
)
def test_platform_is_chosen(offered: tuple[str | None, ...], wanted: str, chosen: int) -> None:
    index = index_of(*offered)

    assert index.choose(Platform.parse(wanted)) == index.manifests[chosen]


def test_platform_that_is_not_offered_names_those_that_are() -> None:
    with pytest.raises(FormatError, match=r"no image for platform linux/s390x \(it has linux/amd64, linux/arm64\)"):
        index_of("linux/amd64", "linux/arm64").choose(Platform.parse("linux/s390x"))
