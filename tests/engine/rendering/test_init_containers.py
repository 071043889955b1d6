"""The init containers in which workers wait: their script in real shells, and their security context."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine.planning import child, decide
from tests.support.objects.jobs import JobBuilder, template
from trainwright.engine import EMBEDDED, InitContainer, Settings
from trainwright.engine.init_template import parse_init_template
from trainwright.objects import Object

BUSYBOX = shutil.which("busybox")
SHELLS = [["/bin/sh"], *([[BUSYBOX, "sh"]] if BUSYBOX else [])]
"""The shell of this machine, and that of busybox if it is installed."""

BUSYBOX_SUCCESS = r"""printf 'Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\n'
printf 'Name:\tdigits-master-0.team.svc.cluster.local\nAddress: 10.244.0.7\n\n'
echo "** server can't find digits-master-0.svc.cluster.local: NXDOMAIN"
exit 1"""
"""The output of busybox 1.35's nslookup for a short name that one of the search domains has."""

BUSYBOX_FAILURE = r"""printf 'Server:\t\t10.96.0.10\nAddress:\t10.96.0.10:53\n\n'
echo "** server can't find digits-master-0.team.svc.cluster.local: NXDOMAIN"
exit 1"""


def waiting(builder: JobBuilder | None = None, *, settings: Settings | None = None, **options: Any) -> list[Object]:
    """The init containers of a worker."""
    chosen = settings or Settings(init_container=InitContainer(**options))
    pod = child(decide(builder or JobBuilder().master().workers(1), settings=chosen), "digits-worker-0")
    containers: list[Object] = pod["spec"].get("initContainers", [])
    return containers


def script(**options: Any) -> str:
    (container,) = waiting(**({"pause_seconds": 0} | options))
    command: str = container["command"][2]
    return command


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory that becomes the whole PATH."""
    (tmp_path / "bin").mkdir()
    install(tmp_path / "bin", sleep="exit 0")
    return tmp_path / "bin"


def install(tools: Path, **bodies: str) -> None:
    for name, body in bodies.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)


def link(tools: Path, *names: str) -> None:
    for name in names:
        found = sys.executable if name == "python3" else shutil.which(name)
        assert found is not None
        install(tools, **{name: f'exec "{found}" "$@"'})


def run(tools: Path, text: str, shell: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*(shell or ["/bin/sh"]), "-c", text]
    return subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
def test_name_is_resolved_with_getent(tools: Path, shell: list[str]) -> None:
    install(tools, getent='echo "$@"')
    done = run(tools, script(max_tries=3), shell)
    assert (done.returncode, done.stdout) == (0, "")


def test_name_is_resolved_with_nslookup_whatever_its_exit_code(tools: Path) -> None:
    install(tools, nslookup=BUSYBOX_SUCCESS)
    done = run(tools, script(max_tries=3))
    assert (done.returncode, done.stdout) == (0, "")


def test_failed_nslookup_is_retried(tools: Path) -> None:
    install(tools, nslookup=BUSYBOX_FAILURE)
    done = run(tools, script(max_tries=2))
    assert (done.returncode, done.stdout) == (1, "waiting for master\n" * 2)


def test_name_is_resolved_with_python(tools: Path) -> None:
    link(tools, "python3")
    assert run(tools, script(max_tries=1).replace("digits-master-0", "localhost")).returncode == 0
    assert run(tools, script(max_tries=1).replace("digits-master-0", "no.such.name.invalid")).returncode == 1


@pytest.mark.parametrize(("port", "tool"), [(False, "getent"), (True, "bash")])
def test_image_without_any_resolver_fails_at_once_with_the_reason(tools: Path, port: bool, tool: str) -> None:
    done = run(tools, script(max_tries=100, wait_for_port=port))
    assert done.returncode == 1
    assert done.stdout.startswith(f"this image has neither {tool} nor ")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
def test_script_fails_after_the_maximum_number_of_tries(tools: Path, shell: list[str]) -> None:
    install(tools, getent="exit 2")
    done = run(tools, script(max_tries=3), shell)
    assert (done.returncode, done.stdout.splitlines()) == (1, ["waiting for master"] * 3)


def test_waiting_is_reported_every_two_seconds(tools: Path) -> None:
    install(tools, getent="exit 2")
    done = run(tools, script(max_tries=21, pause_seconds=0.2))
    assert done.stdout.splitlines() == ["waiting for master"] * 3
    done = run(tools, script(max_tries=3, pause_seconds=2))
    assert done.stdout.splitlines() == ["waiting for master"] * 3


def test_script_succeeds_as_soon_as_the_name_resolves(tools: Path) -> None:
    install(tools, getent=f'if [ -e "{tools}/there" ]; then exit 0; fi; : > "{tools}/there"; exit 2')
    done = run(tools, script(max_tries=5))
    assert (done.returncode, done.stdout.splitlines()) == (0, ["waiting for master"])


# The port


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def port_script(port: int) -> str:
    text = script(max_tries=1, wait_for_port=True)
    assert "digits-master-0" in text
    return text.replace("digits-master-0", "127.0.0.1").replace("23456", str(port))


IMAGES = [(SHELLS[0], ("bash", "timeout")), (SHELLS[0], ("python3",)), *((shell, ("true",)) for shell in SHELLS[1:])]


@pytest.mark.parametrize(("shell", "present"), IMAGES, ids=lambda names: names[0])
def test_script_waits_for_the_port(
    tools: Path, shell: list[str], present: tuple[str, ...], listener: int, closed: int
) -> None:
    link(tools, *present)
    assert run(tools, port_script(listener), shell).returncode == 0
    assert run(tools, port_script(closed), shell).returncode == 1


@pytest.mark.parametrize(
    ("usage", "arguments"),
    [("-w SEC  Timeout, -z  Zero-I/O mode", "-z -w 2 127.0.0.1 7"), ("nc [-wN] [-e PROG]", "-w 2 127.0.0.1 7 -e true")],
)
def test_netcat_is_called_with_the_options_that_it_supports(tools: Path, usage: str, arguments: str) -> None:
    install(tools, nc=f'case "$*" in -h) echo "{usage}" >&2; exit 1 ;; esac; [ "$*" = "{arguments}" ]')
    assert run(tools, port_script(7)).returncode == 0


def test_port_is_the_declared_one() -> None:
    port = {"name": "pytorchjob-port", "containerPort": 4711}
    builder = JobBuilder().master(pod=template(ports=[port])).workers(1)
    (container,) = waiting(builder, wait_for_port=True)
    assert "/dev/tcp/digits-master-0/4711" in container["command"][2]


# The security context

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def secured(container: Object | None, pod: Object | None = None) -> Object | None:
    """The security context of the init container in a pod with these."""
    made = template(**({"securityContext": container} if container else {}))
    if pod:
        made["spec"]["securityContext"] = pod
    (ours,) = waiting(JobBuilder().master().workers(1, pod=made))
    context: Object | None = ours.get("securityContext")
    return context


def test_init_container_of_a_pod_without_security_context_is_upstreams() -> None:
    assert secured(None) is None
    assert secured(None, {"fsGroup": 1000}) is None
    assert secured({"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}, "runAsUser": 0}) is None


def test_init_container_has_the_security_context_of_the_main_container() -> None:
    assert secured(RESTRICTED) == RESTRICTED
    assert secured({**RESTRICTED, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}) == RESTRICTED


def test_init_container_of_a_non_root_pod_runs_as_a_user() -> None:
    as_nobody = {"runAsUser": 65534}
    assert secured(None, {"runAsNonRoot": True}) == as_nobody
    assert secured({"runAsNonRoot": True}) == {"runAsNonRoot": True, **as_nobody}
    assert secured(None, {"runAsNonRoot": True, "runAsUser": 7}) is None, "the pod has a user"


def test_init_container_has_no_security_context_on_the_embedded_cluster() -> None:
    builder = JobBuilder().master().workers(1, pod=template(securityContext=RESTRICTED))
    (ours,) = waiting(builder, settings=EMBEDDED)
    assert set(ours) == {"name", "image", "imagePullPolicy", "command"}


# Templates


def test_template_replaces_the_default_init_container() -> None:
    text = """
    - name: init-pytorch
      image: {{.InitContainerImage}}
      command: [wait-for, "{{.MasterAddr}}", "{{.MaxTries}}"]
    - {name: second, image: "x"}
    """
    containers = waiting(image="mine:1", max_tries=7, template=parse_init_template(text))
    assert containers == [
        {"name": "init-pytorch", "image": "mine:1", "command": ["wait-for", "digits-master-0", "7"]},
        {"name": "second", "image": "x"},
    ]


def test_init_containers_get_names_that_the_pod_does_not_have() -> None:
    pod = template()
    pod["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "a"}, {"name": "init-pytorch-2", "image": "b"}]
    builder = JobBuilder().master().workers(1, pod=pod)
    assert [one["name"] for one in waiting(builder)] == ["init-pytorch", "init-pytorch-2", "init-pytorch-3"]
    own = parse_init_template("[{name: pytorch, image: x}, {name: pytorch-2, image: y}]")
    names = [one["name"] for one in waiting(builder, template=own)]
    assert names[2:] == ["pytorch-2", "pytorch-2-2"]


def test_pod_without_peer_or_with_waiting_switched_off_has_no_init_container() -> None:
    assert waiting(settings=Settings(init_container=None)) == []
    assert waiting(JobBuilder().workers(1)) == []


def test_restrictions_are_those_of_the_main_container_wherever_it_stands() -> None:
    main = {"name": "pytorch", "image": "a", "securityContext": {"allowPrivilegeEscalation": False}}
    pod = {"spec": {"containers": [{"name": "sidecar", "image": "b"}, main]}}
    (container,) = waiting(JobBuilder().master().workers(1, pod=pod))
    assert container["securityContext"] == {"allowPrivilegeEscalation": False}
