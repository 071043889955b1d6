"""What a container at `overlay` cannot reach, as root and as an ordinary user."""

import json
import os
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import container
from trainwright.cluster.linux.privileges import CAPABILITIES, CONTAINER_CAPABILITIES

PYTHON = str(shutil.which("python3", path="/usr/local/bin:/usr/bin"))
"""That of the tests may be in /tmp, which pods do not see."""
RESTRICTED = {"capabilities": list(CONTAINER_CAPABILITIES), "noNewPrivileges": True, "filtered": True}
_CALL = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
numbers = [int(number) for number in sys.argv[1:]]
result = libc.syscall(*map(ctypes.c_long, numbers))
print(errno.errorcode[ctypes.get_errno()] if result == -1 else "done")
"""


def volume(path: Path, target: str, *, sub_path: str = "", host_path: bool = False) -> dict[str, Any]:
    source = str(path / sub_path) if sub_path else str(path)
    return {"source": source, "volume": str(path), "target": target, "readOnly": False, "hostPath": host_path}


def output(runner: Any, script: str, **fields: Any) -> str:
    with runner.run(container(script, security=RESTRICTED, **fields.pop("fields", {})), **fields) as pod:
        pod.wait()
    return "\n".join(pod.output())


@pytest.fixture
def secret(overlay: Any) -> Path:
    """A file in a directory that pods must not see."""
    directory = Path(overlay.shared / "hidden")
    directory.mkdir()
    overlay.user.own(directory)
    (directory / "token").write_text("secret")
    return directory


@pytest.mark.parametrize("path", ["/proc/1/root{0}/token", "/proc/1/cwd/state.json", "/proc/1/environ", "/proc/1/fd/0"])
def test_the_process_of_the_supervisor_is_closed(overlay: Any, secret: Path, path: str) -> None:
    script = f"cat {path.format(secret)} && echo reached; true"
    assert "reached" not in output(overlay, script, hidden=[str(secret)])


def test_the_supervisor_cannot_be_traced(overlay: Any) -> None:
    script = "import ctypes; print(ctypes.CDLL(None, use_errno=True).ptrace(16, 1, 0, 0), ctypes.get_errno())"  # ATTACH
    with overlay.run(container("", argv=[PYTHON, "-c", script], security=RESTRICTED)) as pod:
        pod.wait()
    assert pod.output() == ["-1 1"]


def test_a_hidden_directory_cannot_be_mounted_by_its_own_path_or_through_a_link(overlay: Any, secret: Path) -> None:
    link = overlay.shared / "link"
    link.symlink_to(secret)
    for path in (secret, link, secret / "token"):
        mounts = [volume(path, "/v", host_path=True)]
        with overlay.run(container("cat /v/token /v", mounts=mounts), hidden=[str(secret)]) as pod:
            state = pod.wait()
        ended = state["containers"][0]["state"]["terminated"]
        assert "directory of the cluster" in ended["message"]
        assert pod.output() == []
        _reset(overlay)


def test_a_link_in_a_volume_does_not_lead_a_sub_path_out_of_it(overlay: Any, secret: Path) -> None:
    data = overlay.shared / "data"
    data.mkdir()
    overlay.user.own(data)
    (data / "link").symlink_to(secret)
    (data / "relative").symlink_to("../hidden")
    for name in ("link", "relative"):
        mounts = [volume(data, "/v", sub_path=name)]
        with overlay.run(container("cat /v/token", mounts=mounts), hidden=[str(secret)]) as pod:
            state = pod.wait()
        assert "leads out of" in state["containers"][0]["state"]["terminated"]["message"]
        _reset(overlay)


def test_a_container_has_its_own_devices(overlay: Any) -> None:
    names = output(overlay, "ls /dev").split()
    assert {name for name in names if not name.startswith("nvidia")} == {
        "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero",
    }  # fmt: skip
    script = (
        "echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1 && head -c 2 /dev/urandom | wc -c && : > /dev/full"
    )
    assert output_of(overlay, script)[:2] == [" 00 00 00", "2"]


def test_a_container_has_terminals_of_its_own(overlay: Any) -> None:
    script = "import os; a, b = os.openpty(); print(os.ttyname(b), os.listdir('/dev/pts'))"
    with overlay.run(container("", argv=[PYTHON, "-c", script], security=RESTRICTED)) as pod:
        pod.wait()
    assert pod.output() == ["/dev/pts/0 ['0', 'ptmx']"]


def test_a_file_can_be_mounted_in_dev(overlay: Any) -> None:
    log = overlay.shared / "termination-log"
    log.write_text("")
    overlay.user.own(log)
    output(overlay, "echo -n why > /dev/termination-log", fields={"mounts": [volume(log, "/dev/termination-log")]})
    assert log.read_text() == "why"


@pytest.mark.parametrize("path", ["/sys/kernel/uevent_helper", "/sys/fs/cgroup/memory/x", "/proc/sys/kernel/hostname"])
def test_kernel_settings_cannot_be_changed(overlay: Any, path: str) -> None:
    assert "written" not in output(overlay, f"echo x > {path} && echo written; mkdir {path} && echo written; true")


def test_devices_cannot_be_made_and_files_of_the_kernel_are_masked(overlay: Any) -> None:
    script = "mknod /tmp/vda b 254 0 && echo made; mount -t tmpfs x /mnt && echo mounted; head -c 1 /proc/kcore | wc -c"
    found = output(overlay, script)
    assert "made" not in found
    assert "mounted" not in found
    assert "0" in found.split()


def test_a_program_has_the_capabilities_of_a_container_and_gains_none(overlay: Any) -> None:
    script = "grep -E 'Cap(Eff|Bnd|Prm)|NoNewPrivs' /proc/self/status"
    found = dict(line.split(":\t") for line in output(overlay, script).splitlines())
    mask = sum(1 << CAPABILITIES.index(name) for name in CONTAINER_CAPABILITIES)
    is_root = not overlay.user.prefix and os.getuid() == 0
    assert int(found["CapEff"], 16) == (mask if is_root else 0)
    assert int(found["CapBnd"], 16) & ~mask == 0
    assert found["NoNewPrivs"] == "1"


def test_a_read_only_root_leaves_volumes_and_devices_writable(overlay: Any) -> None:
    data = overlay.shared / "data"
    data.mkdir()
    overlay.user.own(data)
    script = "for path in / /etc /tmp /usr /v /dev/shm; do (echo x > $path/f) 2>/dev/null && echo $path; done; true"
    security = {**RESTRICTED, "readOnlyRoot": True}
    with overlay.run(container(script, security=security, mounts=[volume(data, "/v")])) as pod:
        pod.wait()
    assert pod.output() == ["/v", "/dev/shm"]


def test_memory_volumes_and_shared_memory_have_the_size_of_the_limit(overlay: Any) -> None:
    script = "df -k --output=size /dev/shm | tail -1; head -c 3M /dev/zero > /dev/shm/x"
    with overlay.run(container(script, security=RESTRICTED), memoryLimit=2 << 20) as pod:
        state = pod.wait()
    assert pod.output()[0].strip() == "2048"
    assert state["containers"][0]["state"]["terminated"]["exitCode"] != 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root changes its user")
def test_a_program_runs_as_the_given_user_and_groups(overlay: Any) -> None:
    if overlay.user.prefix:
        pytest.skip("only root changes its user")
    security = {**RESTRICTED, "user": 4711, "group": 4712, "groups": [4713]}
    with overlay.run(container("id -u; id -g; id -G; grep CapEff /proc/self/status", security=security)) as pod:
        pod.wait()
    assert pod.output() == ["4711", "4712", "4712 4713", "CapEff:\t0000000000000000"]


def output_of(runner: Any, script: str) -> list[str]:
    _reset(runner)
    return output(runner, script).splitlines()


def _reset(runner: Any) -> None:
    """For another pod on the same runner."""
    pods = runner.node / "pods"
    pods.rename(runner.node / f"pods-{len(list(runner.node.iterdir()))}")


def test_the_pods_of_an_earlier_version_start_too(overlay: Any) -> None:
    """They have neither security nor limits in pod.json."""
    with overlay.run(container("echo ran")) as pod:
        pod.wait()
    assert pod.output() == ["ran"]
    assert "security" not in json.loads((pod.directory / "pod.json").read_text())["containers"][0]


@pytest.mark.skipif(not Path("/dev/kmsg").exists(), reason="this machine has no device to give")
@pytest.mark.parametrize(("devices", "found"), [([], "not"), (["/dev/kmsg", "/dev/missing"], "there")])
def test_a_container_has_only_the_devices_that_it_was_given(overlay: Any, devices: list[str], found: str) -> None:
    script = "test -e /dev/kmsg && echo there || echo not"
    assert output(overlay, script, fields={"devices": devices}) == found


def test_a_mount_point_is_not_made_on_the_host_through_a_link_in_a_volume(overlay: Any) -> None:
    """While volumes are mounted, the host's root is still there, below a name that no link can know."""
    data, other, outside = overlay.shared / "data", overlay.shared / "other", overlay.shared / "outside"
    for path in (data, other, outside):
        path.mkdir()
        overlay.user.own(path)
    (data / "link").symlink_to(f"/.host{outside}")
    mounts = [volume(data, "/v"), volume(other, "/v/link/made")]
    with overlay.run(container("true", security=RESTRICTED, mounts=mounts)) as pod:
        pod.wait()
    assert not list(outside.iterdir())


NEW_USER_NAMESPACE = 0x10000000
CALLS = {
    "x86_64": {"unshare": 272, "clone": 56, "clone3": 435, "keyctl": 250, "add_key": 248, "open_by_handle_at": 304},
    "aarch64": {"unshare": 97, "clone": 220, "clone3": 435, "keyctl": 219, "add_key": 217, "open_by_handle_at": 265},
}.get(os.uname().machine, {})


@pytest.mark.skipif(not CALLS, reason="no filter on this processor")
@pytest.mark.parametrize("escalation", [False, True])
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("unshare", [NEW_USER_NAMESPACE], "EPERM"),
        ("unshare", [NEW_USER_NAMESPACE | 0x02000000], "EPERM"),  # with the control groups
        ("clone", [NEW_USER_NAMESPACE | 17, 0, 0, 0, 0], "EPERM"),
        ("clone3", [0, 88], "ENOSYS"),
        ("keyctl", [0, -3, 0], "EPERM"),  # its session keyring
        ("add_key", [0, 0, 0, 0, -5], "EPERM"),
        ("open_by_handle_at", [-100, 0, 0], "EPERM"),
        ("unshare", [0], "done"),
    ],
)
def test_what_no_namespace_separates_is_refused(
    overlay: Any, name: str, arguments: list[int], answer: str, escalation: bool
) -> None:
    """A user namespace would let root mount the control groups of the machine, and lift its own limits."""
    argv = [PYTHON, "-c", _CALL, str(CALLS[name]), *map(str, arguments)]
    security = {**RESTRICTED, "noNewPrivileges": not escalation}
    with overlay.run(container("", argv=argv, security=security)) as pod:
        pod.wait()
    assert pod.output() == [answer]


@pytest.mark.skipif(not CALLS, reason="no filter on this processor")
def test_a_command_inside_a_container_has_the_same_filter(overlay: Any) -> None:
    answer = overlay.shared / "answer"
    hook = {"exec": ["/bin/sh", "-c", f"unshare -U echo made > {answer} 2>&1; true"]}
    mounts = [volume(overlay.shared, str(overlay.shared))]
    script = f"until test -s {answer}; do sleep 0.01; done; cat {answer}"
    fields = {"mounts": mounts, "hooks": {"postStart": hook}}
    assert output(overlay, script, fields=fields) == "unshare: unshare failed: Operation not permitted"


def test_programs_of_another_architecture_are_filtered_too() -> None:
    from trainwright.cluster.linux.seccomp import Calls, assemble

    own = Calls(1, clone=2, unshare=3, refused=(4,), sockets={})
    other = Calls(5, clone=6, unshare=7, refused=(8,), sockets={})
    run = partial(_run_filter, assemble([own, other]))
    errors = {"EPERM": 0x50001, "ENOSYS": 0x50026}
    for calls in (own, other):
        for number in calls.with_flags:
            assert run(calls.architecture, number, NEW_USER_NAMESPACE) == errors["EPERM"]
            assert run(calls.architecture, number, 0x11) == ALLOWED
        assert run(calls.architecture, calls.refused[0], 0) == errors["EPERM"]
        assert run(calls.architecture, 435, 0) == errors["ENOSYS"]
    assert run(own.architecture, other.refused[0], 0) == ALLOWED
    assert run(9, 2, 0) == errors["ENOSYS"]


ALLOWED = 0x7FFF0000


def _run_filter(program: bytes, architecture: int, number: int, argument: int) -> int:
    """As the kernel would: loads, jumps and returns."""
    memory = {0: number, 4: architecture, 16: argument}
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = value = 0
    while True:
        code, on_true, on_false, operand = instructions[position]
        position += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            value = memory[operand]
            continue
        holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
        position += on_true if holds else on_false
