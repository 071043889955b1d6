"""Programs of pods with ports of their own: real supervisors, real sockets."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import SupervisedPod, container
from trainwright.cluster.node.supervisor.pod_events import read_events

pytestmark = pytest.mark.thorough("root-overlay", "root-plain", "ordinary-plain", sample=20)

PORT = 18_765
"""At the address of a pod, which no other test has."""
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
"""One that every user can run in every sandbox."""


def program(runner: Any, text: str, *, name: str = "main", **fields: Any) -> dict[str, Any]:
    """A container that runs a Python program."""
    path = runner.shared / f"{name}.py"
    path.write_text(text)
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    return container(f"exec {PYTHON} -u {path}", name=name, mounts=mounts, **fields)


def run_program(runner: Any, address: str, text: str, **fields: Any) -> list[str]:
    with runner.run(program(runner, text), address=address, ownPorts=True, **fields) as pod:
        pod.wait()
    output: list[str] = pod.output()
    return output


@pytest.mark.parametrize(
    ("family", "host", "option", "bound"),
    [
        ("AF_INET", "0.0.0.0", "", "own"),  # noqa: S104
        ("AF_INET", "127.0.0.1", "", "own"),
        ("AF_INET", "", "", "own"),
        ("AF_INET6", "::", "own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)", "mapped own"),
        ("AF_INET6", "::", "own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)", "mapped second"),
        ("AF_INET6", "::1", "", "mapped second"),
        ("AF_INET6", "::ffff:127.0.0.1", "", "mapped own"),
        ("AF_INET", "127.0.0.9", "", "other"),
    ],
)
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_a_socket_is_bound_to_the_address_of_its_pod(
    runner: Any, address: str, kind: str, family: str, host: str, option: str, bound: str
) -> None:
    first, second, third, last = map(int, address.split("."))
    expected = {
        "own": address,
        "mapped own": f"::ffff:{address}",
        "mapped second": f"::ffff:{first}.{second}.{third + 128}.{last}",
        "other": "127.0.0.9",
    }
    text = f"""
import socket
own = socket.socket(socket.{family}, socket.{kind})
own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
{option}
own.bind(({host!r}, {PORT}))
print(*own.getsockname()[:2])
"""
    assert run_program(runner, address, text) == [f"{expected[bound]} {PORT}"]


def test_a_port_that_the_kernel_chooses_is_one_of_the_machine(runner: Any, address: str) -> None:
    text = """
import socket
for host in ("0.0.0.0", "127.0.0.1"):
    own = socket.socket()
    own.bind((host, 0))
    print(own.getsockname()[0], own.getsockname()[1] > 0)
"""
    assert run_program(runner, address, text) == ["0.0.0.0 True", "127.0.0.1 True"]


def test_all_processes_of_a_pod_have_its_ports(runner: Any, address: str) -> None:
    text = f"""
import os, socket, subprocess, sys, threading
def bind(name, port):
    own = socket.create_server(("0.0.0.0", port))
    print(name, own.getsockname()[0])
thread = threading.Thread(target=bind, args=("thread", {PORT}))
thread.start()
thread.join()
reader, writer = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        bind("daemon", {PORT + 1})
        os._exit(0)
    os._exit(0)
os.wait()
code = "import socket; s = socket.socket(); s.bind(('', {PORT + 2})); print('program', s.getsockname()[0])"
subprocess.run([sys.executable, "-c", code], check=True)
os.close(writer)
os.read(reader, 1)  # until the daemon has ended
"""
    assert sorted(run_program(runner, address, text)) == [
        f"daemon {address}",
        f"program {address}",
        f"thread {address}",
    ]


def test_hooks_have_the_ports_of_their_pod(runner: Any, address: str) -> None:
    code = f"import socket; s = socket.socket(); s.bind(('', {PORT})); print(s.getsockname()[0], file=open(OUT, 'w'))"
    answer = runner.shared / "answer"
    hook = {"exec": [PYTHON, "-c", code.replace("OUT", repr(str(answer)))]}
    text = f"""
import os, time
while not os.path.exists({str(answer)!r}) or not open({str(answer)!r}).read():
    time.sleep(0.01)
print(open({str(answer)!r}).read())
"""
    main = program(runner, text, hooks={"postStart": hook})
    with runner.run(main, address=address, ownPorts=True) as pod:
        pod.wait()
    assert pod.output()[0] == address


SERVER = """
import os, socket, sys
server = socket.create_server(("0.0.0.0", {port}))
print("listens", flush=True)
connection, _ = server.accept()
connection.sendall(b"{text}")
connection.close()
"""


def test_other_processes_of_the_machine_reach_a_listener_at_the_address_of_its_pod(
    runner: Any, address: str, free_port: int
) -> None:
    with runner.run(program(runner, SERVER.format(port=free_port, text="pod")), address=address, ownPorts=True) as pod:
        pod.until(lambda pod: pod.output())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", free_port))
        with socket.create_connection((address, free_port)) as client:
            assert client.recv(10) == b"pod"
        pod.wait()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0"])  # noqa: S104
def test_a_connection_to_loopback_reaches_the_listener_of_the_pod(
    runner: Any, address: str, free_port: int, host: str
) -> None:
    text = f"""
import socket, threading
server = socket.create_server(("", {free_port}), family=socket.AF_INET6, dualstack_ipv6=True)
def answer():
    connection, _ = server.accept()
    connection.sendall(b"own")
    connection.close()
threading.Thread(target=answer).start()
with socket.create_connection(({host!r}, {free_port}), timeout=10) as client:
    print(client.recv(10).decode())
"""
    with socket.create_server(("127.0.0.1", free_port)):  # another program of the machine
        assert run_program(runner, address, text) == ["own"]


def test_a_connection_to_loopback_reaches_the_machine_if_the_pod_has_no_listener(runner: Any, address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket; print(socket.create_connection(('127.0.0.1', {port})).getpeername()[0])"
        assert run_program(runner, address, text) == ["127.0.0.1"]


def test_datagrams_to_loopback_reach_the_pod_itself(runner: Any, address: str) -> None:
    text = f"""
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", {PORT}))
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.sendto(b"sent", ("127.0.0.1", {PORT}))
print(server.recv(10).decode())
client.connect(("127.0.0.1", {PORT}))
client.send(b"connected")
data, sender = server.recvfrom(10)
print(data.decode())
server.sendto(b"answer", sender)
print(client.recv(10).decode())
"""
    assert run_program(runner, address, text) == ["sent", "connected", "answer"]


def test_a_connect_waits_for_a_full_listener_and_a_signal_interrupts_it(runner: Any, address: str) -> None:
    text = f"""
import signal, socket, time
server = socket.create_server(("0.0.0.0", {PORT}), backlog=0)
waiting = [socket.socket() for _ in range(4)]
for client in waiting:
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", {PORT}))
def interrupt(*_):
    raise InterruptedError("interrupted")
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.1)
client = socket.socket()
try:
    client.connect(("127.0.0.1", {PORT}))
    print("connected")
except InterruptedError as error:
    print(error)
"""
    assert run_program(runner, address, text) == ["interrupted"]


def test_wrong_calls_have_the_errors_of_the_kernel(runner: Any, address: str) -> None:
    text = """
import ctypes, errno, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
any_address = struct.pack("=HHI8x", socket.AF_INET, socket.htons(18765), 0)
def call(name, descriptor, address, size):
    result = getattr(libc, name)(descriptor, address, size)
    print(name, errno.errorcode[ctypes.get_errno()] if result else "done")
own = socket.socket()
call("bind", own.fileno(), any_address, 2)
call("bind", own.fileno(), any_address, 200)
call("bind", own.fileno(), any_address, -1)
call("bind", own.fileno(), ctypes.c_void_p(1), 16)
call("bind", 999, any_address, 16)
call("bind", os.open("/dev/null", os.O_RDONLY), any_address, 16)
call("connect", own.fileno(), any_address, 4)
call("bind", own.fileno(), struct.pack("=HHI8x", 0, socket.htons(18765), 0), 16)
call("bind", own.fileno(), any_address, 16)
others = [socket.socket(family) for family in (socket.AF_INET6, socket.AF_UNIX)]
for other in others:
    call("bind", other.fileno(), any_address, 16)
print(own.getsockname()[0])
"""
    assert run_program(runner, address, text) == [
        "bind EINVAL", "bind EINVAL", "bind EINVAL", "bind EFAULT", "bind EBADF", "bind ENOTSOCK", "connect EINVAL",
        "bind done", "bind EINVAL", "bind EINVAL", "bind EINVAL", address,
    ]  # fmt: skip


def test_a_socket_that_another_process_passed_is_bound_too(runner: Any, address: str) -> None:
    text = f"""
import os, socket
here, there = socket.socketpair()
if os.fork() == 0:
    _, descriptors, _, _ = socket.recv_fds(there, 1, 1)
    socket.socket(fileno=descriptors[0]).bind(("", {PORT}))
    os._exit(0)
own = socket.socket()
socket.send_fds(here, [b"x"], [own.fileno()])
os.wait()
print(own.getsockname()[0])
"""
    assert run_program(runner, address, text) == [address]


def test_a_program_without_the_capability_gets_no_privileged_port(runner: Any, address: str) -> None:
    start = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())
    if start <= 80:
        pytest.skip("every program may have port 80 here")
    text = """
import socket
try:
    socket.socket().bind(("", 80))
    print("bound")
except PermissionError:
    print("refused")
"""
    security: dict[str, Any] = {"capabilities": []} if runner.user.name == "root" else {}
    with runner.run(program(runner, text, security=security), address=address, ownPorts=True) as pod:
        pod.wait()
    assert pod.output() == ["refused"]


def test_the_ports_on_which_a_pod_listens_are_in_its_state(runner: Any, address: str) -> None:
    def listening(pod: SupervisedPod) -> Any:
        return pod.state.get("listening")

    text = f"""
import socket, sys
bound = socket.socket()
bound.bind(("", {PORT + 1}))
server = socket.create_server(("", {PORT}))
server.accept()
server.close()
"""
    with runner.run(program(runner, text), address=address, ownPorts=True) as pod:
        pod.until(lambda pod: listening(pod) == [PORT])
        socket.create_connection((address, PORT)).close()
        assert pod.wait()["listening"] == []


def test_a_pod_without_ports_of_its_own_has_those_of_the_machine(runner: Any, address: str, free_port: int) -> None:
    with runner.run(program(runner, SERVER.format(port=free_port, text="machine")), ownPorts=False) as pod:
        pod.until(lambda pod: pod.output())
        with socket.create_connection(("127.0.0.1", free_port)) as client:
            assert client.recv(10) == b"machine"
        pod.wait()


def test_many_pods_can_have_the_same_port_at_once(runner: Any, address: str, free_port: int) -> None:
    with runner.run(
        program(runner, SERVER.format(port=free_port, text="first")), address=address, ownPorts=True
    ) as pod:
        pod.until(lambda pod: pod.output())
        with (
            socket.create_server(("127.210.63.8", free_port)),
            socket.create_server(("127.0.0.1", free_port)),
            socket.create_connection((address, free_port)) as client,
        ):
            assert client.recv(10) == b"first"
        pod.wait()


def test_programs_of_32_bits_have_the_ports_of_their_pod(runner: Any, address: str) -> None:
    source = runner.shared / "small.c"
    source.write_text(
        """
        static int call(int number, int a, void *b) {
            int result;
            __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b) : "memory");
            return result;
        }
        static int call3(int number, int a, void *b, int c) {
            int result;
            __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
            return result;
        }
        static unsigned char bytes[16] = {2, 0, 0x49, 0x4d};
        static unsigned int args[3], size;
        void _start(void) {
            args[0] = 2; args[1] = 1; args[2] = 0;
            int own = call(102, 1, args);                       /* socketcall: socket */
            args[0] = own; args[1] = (unsigned int)bytes; args[2] = 16;
            int bound = call(102, 2, args);                     /* socketcall: bind */
            size = 16; args[2] = (unsigned int)&size;
            call(102, 6, args);                                 /* getsockname */
            bytes[0] = (unsigned char)-bound;
            call3(4, 1, bytes, 16);                             /* write */
            call(1, 0, 0);
        }
        """
    )
    command = ["gcc", "-m32", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie"]
    built = subprocess.run(
        [*command, "-o", str(runner.shared / "small"), str(source)], capture_output=True, check=False
    )
    if built.returncode:
        pytest.skip(f"no compiler for 32 bits: {built.stderr.decode()[-200:]}")
    text = f"""
import socket, subprocess
answer = subprocess.run([{str(runner.shared / "small")!r}], stdout=subprocess.PIPE, check=True).stdout
print(answer[0], socket.inet_ntoa(answer[4:8]))
"""
    assert run_program(runner, address, text) == [f"0 {address}"]


def events(pod: SupervisedPod) -> list[str]:
    return [f"{event['reason']}: {event['message']}" for event in read_events(str(pod.directory))]


def test_a_declared_port_that_is_taken_is_an_event_where_pods_have_the_ports_of_the_machine(runner: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with runner.run(container("true", ports=[port, 1]), ownPorts=False) as pod:
            assert pod.wait()["reason"] == ""
    assert events(pod) == [f"PortInUse: port {port} is in use"]


def test_a_port_that_the_pod_itself_has_is_no_event(runner: Any, address: str) -> None:
    text = f"""
import socket
first = socket.create_server(("", {PORT}))
try:
    socket.create_server(("", {PORT}))
except OSError as error:
    print(error.strerror.split(" (")[0])
"""
    with runner.run(program(runner, text), address=address, ownPorts=True) as pod:
        pod.wait()
    assert pod.output() == ["Address already in use"]
    assert events(pod) == []


def test_both_kinds_of_addresses_can_have_the_same_port(runner: Any, address: str) -> None:
    text = f"""
import asyncio
async def main():
    answer = lambda reader, writer: (writer.write(b"hello"), writer.close())
    server = await asyncio.start_server(answer, None, {PORT})
    print(len(server.sockets))
    for host in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(host, {PORT})
        print((await reader.read()).decode())
        writer.close()
asyncio.run(main())
"""
    assert run_program(runner, address, text) == ["2", "hello", "hello"]


def test_a_program_cannot_have_the_address_of_another_pod(runner: Any, address: str) -> None:
    other = f"{address.rpartition('.')[0]}.254"
    text = f"""
import socket
for host in ({other!r}, {address!r}):
    try:
        print(socket.create_server((host, {PORT})).getsockname()[0])
    except OSError as error:
        print(error.strerror.split(" (")[0])
"""
    assert run_program(runner, address, text) == ["Cannot assign requested address", address]


def test_a_program_cannot_send_from_the_memory_of_its_supervisor(runner: Any, address: str) -> None:
    """With MSG_ZEROCOPY the kernel sends what is in the sender's memory later: the supervisor must not do it."""
    text = f"""
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", {PORT}))
server.settimeout(0.2)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.setsockopt(socket.SOL_SOCKET, 60, 1)
client.sendto(b"x" * 1000, 0x4000000, ("127.0.0.1", {PORT}))
try:
    print(len(server.recv(2000)))
except TimeoutError:
    print("not for the pod")
"""
    assert run_program(runner, address, text) == ["not for the pod"]


def test_no_call_of_a_program_ends_its_supervisor(runner: Any, address: str) -> None:
    """A program of 64 bits makes a call of 32 bits with something in the upper half of the registers."""
    source, target = runner.shared / "odd.c", runner.shared / "odd"
    source.write_text(
        """
        int main(void) {
            long result;
            for (long call = 2; call < 12; call++)
                __asm__ volatile("int $0x80" : "=a"(result) : "a"(102L), "b"(0x100000000L | call), "c"(-1L) : "memory");
            return 0;
        }
        """
    )
    built = subprocess.run(["gcc", "-o", str(target), str(source)], capture_output=True, check=False)
    if built.returncode:
        pytest.skip(f"no compiler: {built.stderr.decode()[-200:]}")
    text = f"""
import socket, subprocess
print(subprocess.run([{str(target)!r}]).returncode)
print(socket.create_server(("", {PORT})).getsockname()[0])
"""
    assert run_program(runner, address, text) == ["0", address]


def test_a_user_namespace_gives_no_privileged_port(plain: Any, address: str) -> None:
    text = """
import ctypes, socket
print(ctypes.CDLL(None).unshare(0x10000000))
try:
    socket.socket().bind(("", 81))
    print("bound")
except PermissionError:
    print("refused")
"""
    security: dict[str, Any] = {"user": 1000, "group": 1000} if plain.user.name == "root" else {}
    with plain.run(program(plain, text, security=security), address=address, ownPorts=True) as pod:
        pod.wait()
    assert pod.output()[-1] == "refused"
