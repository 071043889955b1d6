import gzip
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.cluster.images.layers.decompression import decompress
from trainwright.cluster.images.layers.namespace import run_as_container_root
from trainwright.cluster.images.layers.unpack import LayerError, UnpackedLayer, unpack_layer

pytestmark = pytest.mark.timeout(300 + settings().max_examples // 5)


def entry(name: str, kind: bytes = tarfile.REGTYPE, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mtime = 1_700_000_000
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def archive(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for one in entries:
            info, content = one if isinstance(one, tuple) else (one, b"")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def unpack(data: bytes, directory: Path, **options: object) -> UnpackedLayer:
    directory.mkdir(exist_ok=True)
    return unpack_layer(io.BytesIO(data), str(directory), **options)  # type: ignore[arg-type]


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    return tmp_path / "layer"


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_files_directories_and_links_have_their_content_mode_and_time(layer: Path, form: int) -> None:
    long_name = "d/" + "n" * 90 + "/" + "m" * 90 if form != tarfile.USTAR_FORMAT else "d/n"
    data = archive(
        entry("d", tarfile.DIRTYPE, mode=0o750),
        (entry("d/file", mode=0o4755), b"content"),
        entry("d/link", tarfile.SYMTYPE, linkname="/absolute/target"),
        entry("hard", tarfile.LNKTYPE, linkname="d/file"),
        entry("pipe", tarfile.FIFOTYPE, mode=0o600),
        (entry(long_name), b"long"),
        form=form,
    )

    found = unpack(data, layer)

    assert (layer / "d/file").read_bytes() == b"content"
    assert stat.S_IMODE((layer / "d/file").stat().st_mode) == 0o4755
    assert stat.S_IMODE((layer / "d").stat().st_mode) == 0o750
    assert (layer / "d").stat().st_mtime == 1_700_000_000
    assert (layer / "d/link").readlink() == Path("/absolute/target")
    assert (layer / "hard").samefile(layer / "d/file")
    assert stat.S_ISFIFO((layer / "pipe").stat().st_mode)
    assert (layer / long_name).read_bytes() == b"long"
    assert found.diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert found.entries == 6


SKIPPABLE = bytes.fromhex("502a4d18 04000000 00000000")
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": lambda data: data,
    "gzip": gzip.compress,
    "gzip in members": lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:]),
    "zstd": zstandard.compress,
    "zstd in frames": lambda data: SKIPPABLE + zstandard.compress(data[:700]) + zstandard.compress(data[700:]),
}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_compression_is_recognized_by_content(layer: Path, compression: str) -> None:
    content = os.urandom(300_000) + bytes(3_000_000)
    data = archive((entry("file"), content))

    found = unpack(COMPRESSIONS[compression](data), layer)

    assert (layer / "file").read_bytes() == content
    assert found.diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_whiteouts_become_those_of_overlayfs(layer: Path) -> None:
    unpack(archive(entry("etc/.wh.removed"), entry("var/.wh..wh..opq"), entry(".wh..wh.plnk", tarfile.DIRTYPE)), layer)

    removed = (layer / "etc/removed").lstat()
    assert stat.S_ISCHR(removed.st_mode)
    assert removed.st_rdev == 0
    assert os.getxattr(layer / "var", "user.overlay.opaque") == b"y"
    assert sorted(path.name for path in layer.iterdir()) == ["etc", "var"]


@pytest.mark.parametrize("whiteout_first", [True, False])
def test_a_directory_that_replaces_one_of_a_lower_layer_is_opaque(layer: Path, whiteout_first: bool) -> None:
    entries = [entry(".wh.data"), entry("data", tarfile.DIRTYPE)]

    unpack(archive(*(entries if whiteout_first else reversed(entries))), layer)

    assert (layer / "data").is_dir()
    assert os.getxattr(layer / "data", "user.overlay.opaque") == b"y"


def test_extended_attributes_are_kept_except_those_of_overlayfs(layer: Path) -> None:
    info = entry("file")
    info.pax_headers = {"SCHILY.xattr.user.note": "kept", "SCHILY.xattr.user.overlay.redirect": "/etc"}

    unpack(archive(info), layer)

    assert os.listxattr(layer / "file") == ["user.note"]


def test_a_later_entry_replaces_an_earlier_one(layer: Path) -> None:
    link = entry("c", tarfile.SYMTYPE, linkname="a")

    unpack(archive((entry("a/b"), b"1"), (entry("a"), b"2"), link, (entry("c"), b"3")), layer)

    assert (layer / "a").read_bytes() == b"2"
    assert (layer / "c").read_bytes() == b"3"


def test_links_to_directories_are_followed_inside_the_layer_only(layer: Path) -> None:
    link = entry("lib", tarfile.SYMTYPE, linkname="/usr/lib")

    unpack(archive(entry("usr/lib", tarfile.DIRTYPE, mode=0o755), link, (entry("lib/x"), b"1")), layer)

    assert (layer / "usr/lib/x").read_bytes() == b"1"
    assert not Path("/usr/lib/x").exists()


OUT = entry("out", tarfile.SYMTYPE, linkname="../outside")
HOSTILE: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "dots": ([entry("../outside/file")], "leads out of the layer"),
    "dots inside": ([entry("a/../../outside/file")], "leads out of the layer"),
    "hard link to the host": (
        [entry("x", tarfile.LNKTYPE, linkname="/etc/passwd")],
        "'x' is a hard link to '/etc/passwd', which is not in the layer",
    ),
    "hard link with dots": ([entry("x", tarfile.LNKTYPE, linkname="../outside/secret")], "leads out of the layer"),
    "hard link by a link": ([OUT, entry("x", tarfile.LNKTYPE, linkname="out/secret")], "is not in the layer"),
    "file below a link": ([OUT, entry("out/file")], "'out/file': No such file"),
    "root as a link": ([entry("./", tarfile.SYMTYPE, linkname="/")], "would replace the root directory"),
    "whiteout of nothing": ([entry("a/.wh...")], "removes nothing"),
    "unknown type": ([entry("x", b"Z")], "is of type 'Z'"),
    "hard link to a directory": (
        [entry("d", tarfile.DIRTYPE), entry("x", tarfile.LNKTYPE, linkname="d")],
        "'x' is a hard link to a directory, 'd'",
    ),
    "long name": ([entry("n" * 300)], "File name too long"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_entries_are_refused_and_touch_nothing_outside(layer: Path, tmp_path: Path, case: str) -> None:
    entries, message = HOSTILE[case]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")

    with pytest.raises(LayerError, match=message):
        unpack(archive(*entries), layer)

    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1


def with_large_window(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:900], "truncated"),
        (lambda data: gzip.compress(data)[:-20], "truncated"),
        (lambda data: gzip.compress(data)[:60] + b"x" * 60, "broken gzip"),
        (lambda data: b"\x28\xb5\x2f\xfd" + b"x" * 60, "broken zstd"),
        (lambda data: zstandard.compress(data)[:-20], "the zstd data is truncated"),
        (lambda data: zstandard.compress(data) + b"x", "broken zstd"),
        (with_large_window, "broken zstd data: .*too much memory"),
        (lambda data: b"this is no archive" * 100, "not a tar archive"),
        (lambda data: data[:5] + b"X" + data[6:], "checksum"),
    ],
)
def test_damaged_archives_are_refused(layer: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    data = archive((entry("file"), os.urandom(2000)))

    with pytest.raises(LayerError, match=message):
        unpack(damage(data), layer)


def test_a_zstd_bomb_is_decompressed_in_pieces() -> None:
    block = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"a"  # 128 KiB of one byte
    bomb = bytes.fromhex("28b52ffd 0080") + block * 4000

    chunks = decompress(io.BytesIO(bomb))

    assert max(len(chunk) for chunk, _ in zip(chunks, range(10), strict=False)) <= 32 << 20


def test_content_that_is_not_what_the_image_says_is_refused(layer: Path) -> None:
    with pytest.raises(LayerError, match=f"not sha256:{'0' * 64} as the image says"):
        unpack(archive(entry("x")), layer, diff_id=f"sha256:{'0' * 64}")


def test_bombs_are_stopped(layer: Path) -> None:
    with pytest.raises(LayerError, match="unpacks to more than the 1000000 bytes"):
        unpack(gzip.compress(archive((entry("zeros"), bytes(30_000_000)))), layer, max_bytes=1_000_000)
    with pytest.raises(LayerError, match="more than 50 entries"):
        unpack(archive(*(entry(f"f{number}") for number in range(60))), layer, max_entries=50)


def test_files_are_written_to_directories_that_are_read_only_in_the_end(layer: Path) -> None:
    """Root may write to them anyway."""
    layer.mkdir()
    names = {".": 0o555, "closed": 0o555, "closed/inside": 0o500, "replaced": 0o500, "target": 0o755}
    directories = [entry(name, tarfile.DIRTYPE, mode=mode) for name, mode in names.items()]
    link = entry("replaced", tarfile.SYMTYPE, linkname="target")

    unpack(archive(*directories, entry("closed/inside/file"), link), layer)

    modes = {name: stat.S_IMODE((layer / name).stat().st_mode) for name in names}
    assert modes == names | {"replaced": names["target"]}
    assert (layer / "closed").stat().st_mtime == 1_700_000_000
    assert (layer / "closed/inside/file").exists()
    layer.chmod(0o755)  # for pytest, which removes it
    (layer / "closed").chmod(0o755)
    (layer / "closed/inside").chmod(0o755)


def test_an_ordinary_user_gets_no_devices_and_is_told_which(layer: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root makes devices")
    layer.mkdir()
    data = archive(entry("dev/sda", tarfile.BLKTYPE, devmajor=8), entry("x"))

    found = run_as_container_root(lambda: unpack(data, layer))

    assert found.skipped_devices == ("/dev/sda",)
    assert (layer / "x").exists()


NAMES = st.sampled_from(
    [
        *("a", "a/b", "a/b/c", "..", "../x", "a/../..", "/", "", ".", "/etc/passwd", "l", "l/x", "l/../x", ".wh.a"),
        *("a/.wh.b", "a/.wh..wh..opq", ".wh..wh..opq", ".wh.", ".wh...", "proc/self/root", "x" * 260, "a\n", "\x01"),
    ]
)
TARGETS = st.sampled_from(
    [
        *("/", "..", "../..", "../outside", "../outside/secret", "a", "a/b", "l", "/proc/self/root/etc", ""),
        *("/proc/self/cwd", "/etc/passwd", "x" * 5000),
    ]
)
XATTRS = st.sampled_from(["user.a", "trusted.overlay.redirect", ""])
TYPES = st.sampled_from([b"0", b"1", b"2", b"2", b"5", b"6", b"3", b"4", b"7", b"S", b"Z", b"\0"])


@st.composite
def hostile_archives(draw: st.DrawFn) -> bytes:
    entries: list[tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]] = []
    for _ in range(draw(st.integers(0, 12))):
        info = entry(draw(NAMES), draw(TYPES), linkname=draw(TARGETS), mode=draw(st.integers(0, 0o7777)))
        info.uid, info.mtime = draw(st.integers(0, 2**33)), draw(st.integers(-(2**40), 2**40))
        if draw(st.booleans()):
            info.pax_headers = {f"SCHILY.xattr.{draw(XATTRS)}": "/"}
        entries.append((info, draw(st.binary(max_size=600))) if info.isreg() else info)
    data = bytearray(archive(*entries))
    for _ in range(draw(st.integers(0, 3))):
        if data and draw(st.booleans()):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(data)))
    whole = bytes(data if draw(st.booleans()) else data[:cut])
    return gzip.compress(whole) if draw(st.booleans()) else whole


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=hostile_archives())
def test_no_archive_writes_outside_of_the_layer(tmp_path: Path, data: bytes) -> None:
    outside, layer = tmp_path / "outside", tmp_path / "layer"
    outside.mkdir(exist_ok=True)
    (outside / "secret").write_text("secret")
    layer.mkdir()

    message = ""
    try:
        unpack(data, layer, max_bytes=1 << 20, max_entries=100)
    except LayerError as error:
        message = str(error)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", layer], capture_output=True, check=False)
        shutil.rmtree(layer)

    assert "\n" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "secret"
    assert (outside / "secret").stat().st_nlink == 1
