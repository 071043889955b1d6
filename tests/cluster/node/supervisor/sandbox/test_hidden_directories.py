"""Attempts to see the directories of a cluster, and to change files of the machine, from inside a container."""

import ctypes
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import LAYERED_DIRECTORY, container
from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.privileges import CONTAINER_CAPABILITIES

RESTRICTED = {"capabilities": list(CONTAINER_CAPABILITIES), "noNewPrivileges": True, "filtered": True}
_RENAME = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
kind, source, target = sys.argv[1:]
result = libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), int(kind))
print(errno.errorcode[ctypes.get_errno()] if result else "renamed")
"""
_EXCHANGE = 2


@dataclass
class Home:
    path: Path
    data: Path
    """The directory that is hidden, with a token."""

    @property
    def shared(self) -> dict[str, Any]:
        return {"source": str(self.path), "target": str(self.path), "readOnly": False, "hostPath": True}


@pytest.fixture
def home(overlay: Any) -> Iterator[Home]:
    with TemporaryDirectory(prefix="home-", dir=LAYERED_DIRECTORY) as directory:
        path = Path(directory)
        data = path / ".local/share/trainwright"
        other = path / "other"
        for place in (path, path / ".local", path / ".local/share", data, other):
            place.mkdir(exist_ok=True)
            overlay.user.own(place)
        (data / "token").write_text("secret")
        yield Home(path, data)


def run(overlay: Any, home: Home, *argv: str, mounts: list[dict[str, Any]] | None = None) -> list[str]:
    """The output of a program in a container that shares the home, or has these mounts; its error if it has none."""
    subject = container("", argv=list(argv), security=RESTRICTED, mounts=[home.shared] if mounts is None else mounts)
    with overlay.run(subject, hidden=[str(home.data)]) as pod:
        state = pod.wait()
    message = state["containers"][0]["state"]["terminated"].get("message", "")
    lines: list[str] = pod.output() or [message]
    pods = overlay.node / "pods"
    pods.rename(overlay.node / f"pods-{len(list(overlay.node.iterdir()))}")
    return lines


def machine_python() -> str:
    return next(path for path in ("/usr/local/bin/python3", "/usr/bin/python3") if Path(path).exists())


@pytest.mark.parametrize("above", [".local", ".local/share"])
def test_directories_above_a_hidden_one_cannot_be_moved(overlay: Any, home: Home, above: str) -> None:
    """A cluster whose data directory moves away stops, and the next container would not know what to hide."""
    volume = {**home.shared, "target": "/v", "volume": str(home.path)}
    for mounts in ([home.shared], [volume]):
        top = Path(mounts[0]["target"])
        for kind, target in ((0, top / "other/moved"), (0, top / "other"), (_EXCHANGE, top / "other")):
            answer = run(
                overlay, home, machine_python(), "-c", _RENAME, str(kind), str(top / above), str(target), mounts=mounts
            )
            assert answer in (["EBUSY"], ["EXDEV"]), (kind, target)
    assert (home.data / "token").exists()


def test_the_rest_of_a_home_can_be_moved(overlay: Any, home: Home) -> None:
    (home.path / ".local/share/jupyter").mkdir()
    overlay.user.own(home.path / ".local/share/jupyter")
    source, target = home.path / ".local/share/jupyter", home.path / ".local/share/notebooks"
    assert run(overlay, home, machine_python(), "-c", _RENAME, "0", str(source), str(target)) == ["renamed"]
    assert target.is_dir()


def test_a_link_that_is_exchanged_does_not_lead_a_volume_to_a_hidden_directory(overlay: Any, home: Home) -> None:
    """As fast as it can, while containers start: what was checked is what is mounted."""
    harmless, evil = home.path / "harmless", home.path / "evil"
    harmless.symlink_to(home.path / "other")
    evil.symlink_to(home.data)
    mounts = [{"source": str(harmless), "target": "/v", "volume": str(harmless), "readOnly": False, "hostPath": True}]
    with _exchanging(harmless, evil):
        for _ in range(6):
            answer = run(overlay, home, "/bin/sh", "-c", "cat /v/token; echo ran", mounts=mounts)
            assert "secret" not in "".join(answer)


def test_a_hidden_file_is_empty(overlay: Any, home: Home) -> None:
    """The kubeconfig's directory may be a file by mistake: pods start all the same."""
    (home.path / "config").write_text("secret")
    subject = container(f"cat {home.path}/config; echo ran", security=RESTRICTED, mounts=[home.shared])
    with overlay.run(subject, hidden=[str(home.path / "config")]) as pod:
        pod.wait()
    assert pod.output() == ["ran"]


def test_a_read_only_root_includes_the_directories_above_hidden_ones(overlay: Any, home: Home) -> None:
    link = home.path.with_name(f"{home.path.name}-link")
    link.symlink_to(home.path)
    shared = {**home.shared, "source": str(link), "target": str(link)}
    script = f"for path in {link} {link}/.local {link}/.local/share; do touch $path/x && echo $path; done; echo ran"
    subject = container(script, security={**RESTRICTED, "readOnlyRoot": True}, mounts=[shared])
    try:
        with overlay.run(subject, hidden=[str(home.data)]) as pod:
            pod.wait()
    finally:
        link.unlink()
    assert [line for line in pod.output() if "Read-only" not in line] == ["ran"]


@contextmanager
def _exchanging(first: Path, second: Path) -> Iterator[None]:
    libc = ctypes.CDLL(None)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.set_blocking(reader, False)
        while True:
            libc.renameat2(-100, os.fsencode(first), -100, os.fsencode(second), _EXCHANGE)
            try:
                if not os.read(reader, 1):
                    os._exit(0)
            except BlockingIOError:
                continue
    os.close(reader)
    try:
        yield
    finally:
        os.close(writer)
        os.waitpid(child, 0)


@pytest.mark.parametrize("inside", ["", "node"])
def test_a_hidden_directory_cannot_be_shared_by_its_path(overlay: Any, home: Home, inside: str) -> None:
    """As an annotation of a pod could ask for."""
    (home.data / "node").mkdir()
    path = str(home.data / inside)
    answer = run(
        overlay, home, "/bin/ls", "/v", mounts=[{"source": path, "target": "/v", "readOnly": False, "hostPath": True}]
    )
    assert answer == [f"hostPath {path} is in a directory of the cluster, which pods do not see"]


def test_a_hidden_directory_is_known_by_its_identity(tmp_path: Path) -> None:
    data, link, other = tmp_path / "data", tmp_path / "link", tmp_path / "other"
    (data / "deep").mkdir(parents=True)
    other.mkdir()
    (data / "file").write_text("x")
    link.symlink_to(data)
    hidden = HiddenDirectories([str(link), str(tmp_path / "missing")])
    assert hidden.paths == [str(data)]
    renamed = tmp_path / "renamed"
    data.rename(renamed)
    for path, expected in ((renamed, True), (renamed / "deep", True), (renamed / "file", True), (other, False)):
        descriptor = os.open(path, os.O_PATH)
        try:
            assert hidden.contain(descriptor) is expected, path
        finally:
            os.close(descriptor)


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
def test_mounts_of_a_hidden_directory_elsewhere_are_hidden_too(tmp_path: Path) -> None:
    script = f"""
import os, sys
from trainwright.cluster.linux.hidden_directories import HiddenDirectories
from trainwright.cluster.linux.mounts import PRIVATE, REC, bind, libc, mount
libc.unshare(0x20000)
mount(None, "/", None, REC | PRIVATE)
os.chdir({str(tmp_path)!r})
for name in ("data/node", "same", "inner", "above"):
    os.makedirs(name)
bind("data", "same")
bind("data/node", "inner")
print(*sorted(os.path.relpath(path) for path in HiddenDirectories(["data"]).paths))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["data", "inner", "same"]


def test_a_private_home_is_empty_and_has_what_is_mounted_in_it(overlay: Any, home: Home) -> None:
    python = home.path / "venv"
    python.mkdir()
    (python / "module").write_text("code")
    mounts = [{"source": str(python), "target": str(python), "readOnly": True, "hostPath": True}]
    script = f"ls -A {home.path}; cat {python}/module; echo x > {home.path}/mine && echo written"
    subject = container(script, security=RESTRICTED, mounts=mounts)
    with overlay.run(subject, hidden=[str(home.data)], privateHomes=[str(home.path)]) as pod:
        pod.wait()
    assert pod.output() == ["venv", "code" + "written"]
    assert not (home.path / "mine").exists()


# The kernel's own file systems


def test_a_host_path_does_not_show_the_processes_of_the_machine(overlay: Any, home: Home) -> None:
    """Their root directories would lead to everything."""
    root = {"source": "/", "target": "/host", "volume": "/", "readOnly": False, "hostPath": True}
    assert run(overlay, home, "/bin/sh", "-c", "ls /host/proc | wc -l", mounts=[root]) == ["0"]
    for path in ("/proc", "/proc/1"):
        processes = {**root, "source": path, "volume": path}
        answer = run(overlay, home, "/bin/ls", "/host", mounts=[processes])
        assert answer[0].startswith(f"hostPath {path} shows the processes of this machine")


def test_a_host_path_does_not_let_a_container_change_kernel_settings(overlay: Any, home: Home) -> None:
    for source, place in (("/", "/host/sys/fs/cgroup"), ("/sys", "/host/fs/cgroup"), ("/sys/fs/cgroup", "/host")):
        mount = {"source": source, "target": "/host", "volume": source, "readOnly": False, "hostPath": True}
        script = f"for path in {place} {place}/memory {place}/cpu; do mkdir $path/made && echo made $path; done; true"
        assert not [line for line in run(overlay, home, "/bin/sh", "-c", script, mounts=[mount]) if "made " in line[:5]]


@pytest.mark.parametrize(
    "path", ["/dev/full", "/dev/null", "/proc/loadavg", "/proc/meminfo", "/proc/sys/kernel/ostype"]
)
def test_modes_of_devices_and_kernel_files_are_not_changed_for_the_machine(overlay: Any, home: Home, path: str) -> None:
    """Root of the container is their owner; masked files are the machine's /dev/null."""
    before = Path(path).stat().st_mode
    masked = "/proc/keys /proc/interrupts"
    try:
        run(overlay, home, "/bin/sh", "-c", f"chmod 0400 {path} {masked}; chown 1 {path}; echo done")
        assert Path(path).stat().st_mode == before
    finally:
        if Path(path).stat().st_mode != before:
            Path(path).chmod(stat.S_IMODE(before))


@pytest.mark.skipif(not Path("/dev/autofs").exists(), reason="no device to try it with")
@pytest.mark.parametrize(("source", "place"), [("/dev", "autofs"), ("/", "dev/autofs"), ("/dev/autofs", "")])
def test_devices_in_a_host_path_are_not_changed_for_the_machine(
    overlay: Any, home: Home, source: str, place: str
) -> None:
    mount = {"source": source, "target": "/host", "volume": source, "readOnly": False, "hostPath": True}
    before = Path("/dev/autofs").stat()
    target = f"/host/{place}".rstrip("/")
    run(overlay, home, "/bin/sh", "-c", f"chmod 0640 {target}; chown 1 {target}; echo done", mounts=[mount])
    after = Path("/dev/autofs").stat()
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)


@pytest.mark.parametrize("place", ["/dev", "/dev/pts", "/sys/fs/cgroup/memory", "/"])
def test_a_sub_path_makes_nothing_among_the_files_of_the_kernel(overlay: Any, home: Home, place: str) -> None:
    inside = {"/": "sys/fs/cgroup/memory/made"}.get(place, "made")
    source = f"{place.rstrip('/')}/{inside}"
    mount = {"source": source, "target": "/host", "volume": place, "readOnly": False, "hostPath": True}
    run(overlay, home, "/bin/true", mounts=[mount])
    assert not Path(source).exists()


def test_a_sub_path_makes_nothing_in_a_hidden_directory(overlay: Any, home: Home) -> None:
    volume = {**home.shared, "target": "/host", "volume": str(home.path)}
    for inside in ("made", "made/deep"):
        answer = run(overlay, home, "/bin/echo", "started", mounts=[{**volume, "source": str(home.data / inside)}])
        assert "which pods do not see" in answer[-1]
    assert [path.name for path in home.data.iterdir()] == ["token"]


def test_a_read_only_root_leaves_out_mounts_that_are_hidden(overlay: Any, home: Home) -> None:
    """The memory of the pod's own sandbox is mounted in the data directory."""
    overlay = replace(overlay, node=home.data)
    security = {**RESTRICTED, "readOnlyRoot": True}
    with overlay.run(container("echo started", security=security), hidden=[str(home.data)]) as pod:
        pod.wait()
    assert pod.output() == ["started"]


def test_the_input_of_a_program_is_not_a_device_of_the_machine(overlay: Any, home: Home) -> None:
    """What the supervisor opens for a program is outside of the container's own /dev."""
    null = Path("/dev/null")
    mode = stat.S_IMODE(null.stat().st_mode)
    try:
        answer = run(overlay, home, machine_python(), "-c", f"import os; os.fchmod(0, {mode | 0o1})")
        assert "Read-only file system" in answer[-1] or "not permitted" in answer[-1]
        assert stat.S_IMODE(null.stat().st_mode) == mode
    finally:
        null.chmod(mode) if os.getuid() == 0 else None


def test_shared_memory_in_a_host_path_is_writable(overlay: Any, home: Home) -> None:
    mount = {"source": "/dev/shm", "target": "/host", "volume": "/dev/shm", "readOnly": False, "hostPath": True}
    script = "touch /host/trainwright-test && rm /host/trainwright-test && echo written"
    assert run(overlay, home, "/bin/sh", "-c", script, mounts=[mount]) == ["written"]


def test_a_program_names_its_threads(overlay: Any, home: Home) -> None:
    """CUDA does not start without."""
    program = "open('/proc/self/comm', 'w').write('named'); print(open('/proc/self/comm').read())"
    assert run(overlay, home, machine_python(), "-c", program)[0] == "named"


def test_devices_can_be_used(overlay: Any, home: Home) -> None:
    script = "echo x > /dev/null && head -c 1 /dev/zero | wc -c && echo y > /dev/full || echo full"
    assert run(overlay, home, "/bin/sh", "-c", script)[0] == "1"


@pytest.mark.parametrize("place", ["/run", LAYERED_DIRECTORY])
def test_the_sockets_of_the_machine_cannot_be_reached_by_their_paths(overlay: Any, home: Home, place: str) -> None:
    """Those of service managers would start programs outside of the pod."""
    if not os.access(place, os.W_OK):
        pytest.skip(f"{place} belongs to root")
    with TemporaryDirectory(prefix="sockets-", dir=place) as directory, socket.socket(socket.AF_UNIX) as server:
        Path(directory).chmod(0o755)
        server.bind(f"{directory}/socket")
        Path(f"{directory}/socket").chmod(0o777)
        server.listen()
        program = f"import socket; socket.socket(socket.AF_UNIX).connect('{directory}/socket'); print('connected')"
        assert "connected" not in run(overlay, home, machine_python(), "-c", program)


def test_run_is_the_containers_own(overlay: Any, home: Home) -> None:
    script = "mkdir -p /run/mine /var/run/also && ls /run"
    assert set(run(overlay, home, "/bin/sh", "-c", script)) - {"systemd", "resolvconf", "NetworkManager"} == {
        "also",
        "mine",
        *(entry.name for entry in os.scandir("/run") if entry.is_symlink()),
    }
    assert not Path("/run/mine").exists()


# The files of the machine that are executed


@pytest.mark.parametrize("way", ["/proc/self/exe", "script", "link"])
def test_the_python_of_the_supervisor_cannot_be_changed(overlay: Any, home: Home, way: str) -> None:
    """/proc/self/exe is that Python until the container's program is executed, which may be /proc/self/exe itself."""
    python = Path(overlay.user.python).resolve()
    mode = stat.S_IMODE(python.stat().st_mode)
    program = f"import os; os.chmod('/proc/self/exe', {mode | 0o1000}); print(os.readlink('/proc/self/exe'))"
    argv = ["/proc/self/exe", "-c", program]
    if way == "script":
        (home.path / "code.py").write_text(program)
        (home.path / "script").write_text(f"#!/proc/self/exe {home.path}/code.py\n")
        (home.path / "script").chmod(0o755)
        argv = [str(home.path / "script")]
    elif way == "link":
        (home.path / "link").symlink_to("/proc/self/exe")
        argv[0] = str(home.path / "link")
    try:
        run(overlay, home, *argv)
        assert stat.S_IMODE(python.stat().st_mode) == mode
    finally:
        python.chmod(mode) if os.access(python, os.W_OK) else None


@pytest.mark.skipif(tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3), reason="kernels before 6.3")
def test_the_python_of_all_supervisors_stays_executable(overlay: Any, home: Home) -> None:
    program = "import os; os.chmod('/proc/self/exe', 0)"
    assert "PermissionError" in run(overlay, home, "/proc/self/exe", "-c", program)[-1]
