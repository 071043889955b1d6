"""The kubectl of launchers on the embedded cluster: `exec` and `wait`, with the pod's service account.

It runs with a copy of the node's Python in containers of any image (`builtin_images.py`). mpirun starts one for every
worker, so it imports as little as it can: `_socket` instead of the module on top of it.

It reaches the API server by a Unix socket that is mounted in the pod. There exec answers with the descriptors of the
command's streams, so that no byte passes the API server, and the command does not notice when that is killed.
"""

import _socket
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

API_SOCKET = "/run/trainwright/api/api.sock"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PROTOCOL = "descriptors.trainwright"
KEY = "bm8gcHJveHkgaW4gYmV0dw=="
"""The key of the WebSocket: it need not be random, because no proxy lies between pod and API server."""
USAGE = (
    "this kubectl knows `exec POD [-c CONTAINER] -- COMMAND` and "
    "`wait --for=condition=TYPE [--timeout=10s] pod/NAME...`"
)
ANSWER_SECONDS = 30.0
OUTAGE_SECONDS = 600.0
"""How long a command that has not been started waits for an API server that is down."""
RETRY_SECONDS = 0.5
SHOWN_PODS = 5

SESSION, STDOUT, STDERR = 0, 1, 2
MESSAGE = 3
"""Bytes of the WebSocket message that brings the descriptors."""
MAX_ANSWER = 65536
EXIT_KILLED = 137
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class KubectlError(Exception):
    """One line for the user."""


class ApiServerDown(Exception):  # noqa: N818 - a reason to try again
    """The cluster process is not running, has just ended or is too busy: the request had no effect."""


def main(arguments: "list[str]") -> int:
    try:
        options, words, command = parse(arguments)
        verb = words.pop(0) if words else ""
        if verb == "exec" and len(words) == 1 and command:
            return run(Cluster(options), words[0], options.get("container", ""), command)
        if verb == "wait" and words and "for" in options:
            return wait(Cluster(options), words, options)
        raise KubectlError(USAGE)
    except KubectlError as error:
        say(f"error: {error}")
    except OSError as error:
        say(f"error: the API server does not answer: {error}")
    return 1


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def parse(arguments: "list[str]") -> "tuple[dict[str, str], list[str], list[str]]":
    """Options by name, other words, and the command behind `--`."""
    short = {"-c": "container", "-n": "namespace"}
    known = {"container", "namespace", "for", "timeout"}
    options: dict[str, str] = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return options, words, rest
        if not word.startswith("-"):
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        name = short.get(name, name[2:])
        if name not in known or not (equals or rest):
            raise KubectlError(f"unknown option {word}: {USAGE}")
        options[name] = value if equals else rest.pop(0)
    return options, words, []


def quote(text: str) -> str:
    return "".join(chr(byte) if byte in UNRESERVED else f"%{byte:02X}" for byte in os.fsencode(text))


class Cluster:
    """The API server as a pod sees it."""

    def __init__(self, options: "dict[str, str]") -> None:
        self.token = read("token")
        self.namespace = options.get("namespace") or read("namespace")

    def pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods"

    def request(self, path: str, **headers: str) -> "Connection":
        """The connection after the headers of a successful answer."""
        connection = Connection()
        try:
            self._send(connection, path, headers)
        except BaseException:
            connection.close()
            raise
        return connection

    def _send(self, connection: "Connection", path: str, headers: "dict[str, str]") -> None:
        fields = {"Host": "localhost", "Authorization": f"Bearer {self.token}", **headers}
        lines = [f"GET {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
        connection.send("\r\n".join([*lines, "", ""]).encode())
        code = connection.read_line().split()[1:2]
        answered = {}
        while line := connection.read_line():
            name, _, value = line.decode("latin-1").partition(":")
            answered[name.lower()] = value.strip()
        if code in ([b"429"], [b"503"]):  # too many sessions are being opened, or it is shutting down
            raise ApiServerDown
        if code not in ([b"101"], [b"200"]):
            raise KubectlError(problem(connection.read(int(answered.get("content-length") or 0))))


def while_down(action: "Callable[[], T]", end: float) -> "T":
    """Tries again while the API server is down: the cluster process may just be starting again."""
    said = False
    while True:
        try:
            return action()
        except ApiServerDown:
            if time.monotonic() > end:
                raise KubectlError("the API server does not answer: is the cluster running?") from None
            if not said:
                say("waiting for the API server")
                said = True
            time.sleep(RETRY_SECONDS)


class Connection:
    """Bytes and descriptors from the API server."""

    def __init__(self) -> None:
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_SECONDS)
        try:
            self._socket.connect(API_SOCKET)
        except (FileNotFoundError, ConnectionError, BlockingIOError):  # the last one: too many connect at once
            self.close()
            raise ApiServerDown from None
        self._unread = b""
        self.descriptors: list[int] = []

    def wait_at_most(self, seconds: float) -> None:
        """For each of the next reads; a TimeoutError ends it."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except ConnectionError:
            raise ApiServerDown from None

    def read(self, size: int) -> bytes:
        while len(self._unread) < size:
            self._receive()
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    def read_line(self) -> bytes:
        """Without its end."""
        while b"\n" not in self._unread:
            self._receive()
        line, _, self._unread = self._unread.partition(b"\n")
        return line.rstrip(b"\r")

    def _receive(self) -> None:
        size = _socket.CMSG_SPACE(3 * 4)
        try:
            data, ancillary, _, _ = self._socket.recvmsg(65536, size, _socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            raise ApiServerDown from None
        if not data:
            raise ApiServerDown
        self._unread += data
        for _, _, content in ancillary:
            numbers = [content[start : start + 4] for start in range(0, len(content), 4)]
            self.descriptors += [int.from_bytes(number, sys.byteorder) for number in numbers]

    def close(self) -> None:
        self._socket.close()


def read(name: str) -> str:
    try:
        with open(f"{SERVICE_ACCOUNT}/{name}", "rb") as file:  # noqa: PTH123 - pathlib takes long to import
            return file.read().decode().strip()
    except OSError as error:
        raise KubectlError(f"the pod has no service account: {error}") from None


def problem(body: bytes) -> str:
    """The message of the API server."""
    import json

    try:
        status = json.loads(body)
        return f"Error from server ({status['reason']}): {status['message']}"
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip() or "the API server gave no reason"


# exec


def run(cluster: Cluster, pod: str, container: str, command: "list[str]") -> int:
    """Runs a command in a container and returns its exit code."""
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    path = f"{cluster.pods()}/{quote(pod.removeprefix('pod/'))}/exec"
    path = f"{path}?{'&'.join(f'{name}={quote(value)}' for name, value in query)}"
    descriptors = while_down(lambda: prepare(cluster, path), time.monotonic() + OUTAGE_SECONDS)
    session = _socket.socket(fileno=descriptors[SESSION])
    try:
        start(session)
        return exit_code(copy_output(session, {descriptors[STDOUT]: STDOUT, descriptors[STDERR]: STDERR}))
    finally:
        session.close()


def prepare(cluster: Cluster, path: str) -> "list[int]":
    """The descriptors of a command: its session with the supervisor of the pod, stdout and stderr."""
    connection = cluster.request(
        path,
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key=KEY,
        Sec_WebSocket_Protocol=PROTOCOL,
    )
    try:
        connection.read(MESSAGE)
    finally:
        connection.close()
    return connection.descriptors


def start(session: "_socket.socket") -> None:
    """Not before this process has the descriptors: if the API server is killed earlier, nothing runs twice."""
    try:  # noqa: SIM105 - contextlib takes long to import
        session.send(b"start")
    except ConnectionError:
        pass  # the pod has ended


def copy_output(session: "_socket.socket", outputs: "dict[int, int]") -> bytes:
    """Copies from each output to a descriptor of this process until their end; returns the session's last message."""
    answer = None
    poll = select.poll()
    for descriptor in (session.fileno(), *outputs):
        poll.register(descriptor, select.POLLIN)
    while outputs or answer is None:
        for descriptor, _ in poll.poll():
            if descriptor == session.fileno():
                answer = receive_answer(session)
                poll.unregister(descriptor)
            elif data := os.read(descriptor, 65536):
                write(outputs[descriptor], data)
            else:
                poll.unregister(descriptor)
                del outputs[descriptor]
                os.close(descriptor)
    return answer


def write(descriptor: int, data: bytes) -> None:
    """Waits for its reader also if the descriptor does not block: mpirun, which has it too, may have set that."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
        except OSError as error:
            raise KubectlError(f"cannot write the output of the command: {error.strerror}") from None


def receive_answer(session: "_socket.socket") -> bytes:
    """Empty if the pod has ended."""
    try:
        return session.recv(MAX_ANSWER)
    except ConnectionError:
        return b""


def exit_code(answer: bytes) -> int:
    if answer == b'{"exit": 0}':
        return 0
    import json

    ended = json.loads(answer or f'{{"exit": {EXIT_KILLED}}}')
    if "notFound" in ended:
        raise KubectlError("Internal error occurred: the container has ended")
    if "error" in ended:
        raise KubectlError(f"Internal error occurred: error executing command in container: {ended['error']}")
    code = int(ended["exit"])
    if code:
        say(f"command terminated with exit code {code}")
    return code


# wait


def wait(cluster: Cluster, resources: "list[str]", options: "dict[str, str]") -> int:
    """Waits until every pod has had a condition, also pods that do not exist yet."""
    condition = options["for"].partition("=")[2]
    missing = {name[4:] for name in resources if name.startswith("pod/")}
    if not condition or len(missing) < len(set(resources)):
        raise KubectlError(USAGE)
    for pod in watch(cluster, seconds_of(options.get("timeout", "30s"))):
        if has(pod, condition):
            missing.discard(pod["metadata"]["name"])
        if not missing:
            return 0
    names = [f"pods/{name}" for name in sorted(missing)]
    more = [f"{len(names) - SHOWN_PODS} more"] if len(names) > SHOWN_PODS else []
    raise KubectlError(f"timed out waiting for the condition on {', '.join([*names[:SHOWN_PODS], *more])}")


def seconds_of(timeout: str) -> float:
    try:
        return float(timeout.removesuffix("s"))
    except ValueError:
        raise KubectlError(f"--timeout={timeout}: write seconds, such as 90s") from None


def watch(cluster: Cluster, seconds: float) -> "Iterator[dict[str, Any]]":
    """All pods of the namespace, then each that changes. The server ends the watch; if it ends it early, all again."""
    import json

    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        path = f"{cluster.pods()}?watch=true&timeoutSeconds={max(int(left), 1)}"
        connection = while_down(lambda: cluster.request(path), end)  # noqa: B023 - called at once
        try:
            for line in lines(connection, lambda: end - time.monotonic()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    break
                yield event["object"]
        finally:
            connection.close()


def lines(connection: Connection, time_left: "Any") -> "Iterator[bytes]":
    """The lines of a body in chunks, as long as there is time."""
    line = b""
    try:
        while (left := time_left()) > 0:
            connection.wait_at_most(left)
            size = int(connection.read_line().partition(b";")[0], 16)
            if size == 0:
                return
            *complete, line = (line + connection.read(size)).split(b"\n")
            connection.read(2)
            yield from complete
    except (TimeoutError, ApiServerDown):
        return


def has(pod: "dict[str, Any]", condition: str) -> bool:
    found = (pod.get("status") or {}).get("conditions") or []
    return any(known["type"] == condition and known["status"] == "True" for known in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
