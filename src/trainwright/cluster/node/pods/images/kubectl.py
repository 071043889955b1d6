"""The kubectl of launchers on the embedded cluster: `exec` and `wait`, with the pod's service account.

It runs with a copy of the node's Python in containers of any image (`standalone_python`). mpirun starts one for every
worker, so it imports as little as it can: `_socket` and `_ssl` instead of the modules on top of them save 50 ms of CPU.
"""

import _socket
import _ssl
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PROTOCOL = "v5.channel.k8s.io"
KEY = "bm8gcHJveHkgaW4gYmV0dw=="
"""Of the WebSocket: it need not be random, because no proxy lies between pod and API server."""
USAGE = (
    "this kubectl knows `exec POD [-c CONTAINER] -- COMMAND` and "
    "`wait --for=condition=TYPE [--timeout=10s] pod/NAME...`"
)
ANSWER_SECONDS = 30.0
RETRY_SECONDS = 0.5
SHOWN_PODS = 5

STDOUT, STDERR, STATUS = 1, 2, 3
CLOSE, PING, PONG = 8, 9, 10
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class KubectlError(Exception):
    """One line for the user."""


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
        try:
            self.host, self.port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        except KeyError as error:
            raise KubectlError(f"{error} is not set: this program runs in pods") from None
        self.token = read("token")
        self.namespace = options.get("namespace") or read("namespace")

    def pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods"

    def request(self, path: str, **headers: str) -> "Connection":
        """The connection after the headers of a successful answer."""
        connection = Connection(self.host, self.port)
        fields = {"Host": f"{self.host}:{self.port}", "Authorization": f"Bearer {self.token}", **headers}
        lines = [f"GET {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
        connection.send("\r\n".join([*lines, "", ""]).encode())
        code = connection.read_line().split()[1:2]
        answered = {}
        while line := connection.read_line():
            name, _, value = line.decode("latin-1").partition(":")
            answered[name.lower()] = value.strip()
        if code not in ([b"101"], [b"200"]):
            raise KubectlError(problem(connection.read(int(answered.get("content-length") or 0))))
        return connection


class Socket(_socket.socket):
    """As TLS needs it, which refers to it weakly."""

    __slots__ = ("__weakref__",)


def connect(host: str, port: int) -> Socket:
    """Waits for an API server that is not up: the cluster process may just be starting again."""
    end = time.monotonic() + ANSWER_SECONDS
    while True:
        connection = Socket(_socket.AF_INET, _socket.SOCK_STREAM)
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect((host, port))
        except ConnectionRefusedError:
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            return connection


class Connection:
    """Bytes to and from the API server."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = connect(host, port)
        self._socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        # It checks certificates and host names.
        context: Any = _ssl._SSLContext(_ssl.PROTOCOL_TLS_CLIENT)  # noqa: SLF001
        context.load_verify_locations(f"{SERVICE_ACCOUNT}/ca.crt")
        self._tls = context._wrap_socket(self._socket, False, host)  # noqa: SLF001
        self._tls.do_handshake()
        self._unread = b""

    def wait_at_most(self, seconds: "float | None") -> None:
        """For each of the next reads; a TimeoutError ends it."""
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        while data:
            data = data[self._tls.write(data) :]

    def read(self, size: int) -> bytes:
        """Less only at the end of the connection."""
        parts = [self._unread]
        missing = size - len(self._unread)
        while missing > 0 and (part := self._receive()):
            parts.append(part)
            missing -= len(part)
        found = b"".join(parts)
        self._unread = found[size:]
        return found[:size]

    def read_line(self) -> bytes:
        """Without its end."""
        while b"\n" not in self._unread:
            part = self._receive()
            if not part:
                raise KubectlError("the API server ended the connection")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line.rstrip(b"\r")

    def _receive(self) -> bytes:
        """Empty at the end of the connection, also if the API server was killed."""
        try:
            data: bytes = self._tls.read(65536)
        except (_ssl.SSLEOFError, ConnectionError):
            return b""
        return data


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
    connection = cluster.request(
        f"{path}?{'&'.join(f'{name}={quote(value)}' for name, value in query)}",
        Connection="Upgrade",
        Upgrade="websocket",
        Sec_WebSocket_Version="13",
        Sec_WebSocket_Key=KEY,
        Sec_WebSocket_Protocol=PROTOCOL,
    )
    connection.wait_at_most(None)
    for payload in messages(connection):
        channel, data = payload[0], payload[1:]
        if channel in {STDOUT, STDERR}:
            while data:
                data = data[os.write(channel, data) :]
        elif channel == STATUS:
            return exit_code(data)
    raise KubectlError("the connection to the API server ended before the command did")


def exit_code(data: bytes) -> int:
    if b'"Success"' in data and b'"Failure"' not in data:
        return 0
    import json

    status = json.loads(data)
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            code = int(cause["message"])
            say(f"command terminated with exit code {code}")
            return code
    raise KubectlError(status.get("message") or "the command could not be run")


def messages(connection: Connection) -> "Iterator[bytes]":
    """The payloads of all messages until the server closes the connection."""
    message = b""
    while True:
        head = connection.read(2)
        if len(head) < 2:
            return
        final, kind, length = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(connection.read(2 if length == 126 else 8), "big")
        payload = connection.read(length)
        if kind == CLOSE:
            return
        if kind == PING:
            connection.send(masked(PONG, payload))
        elif kind != PONG:
            message += payload
            if final:
                if message:
                    yield message
                message = b""


def masked(kind: int, payload: bytes) -> bytes:
    """A short frame of a client. A mask of zeros leaves the payload as it is."""
    return bytes([0x80 | kind, 0x80 | len(payload), 0, 0, 0, 0]) + payload


# wait


def wait(cluster: Cluster, resources: "list[str]", options: "dict[str, str]") -> int:
    """Waits until every pod has had a condition, also pods that do not exist yet."""
    condition = options["for"].partition("=")[2]
    missing = {name[4:] for name in resources if name.startswith("pod/")}
    if not condition or len(missing) < len(set(resources)):
        raise KubectlError(USAGE)
    seconds = float(options.get("timeout", "30s").rstrip("s"))
    for pod in watch(cluster, seconds):
        if has(pod, condition):
            missing.discard(pod["metadata"]["name"])
        if not missing:
            return 0
    names = [f"pods/{name}" for name in sorted(missing)]
    more = [f"{len(names) - SHOWN_PODS} more"] if len(names) > SHOWN_PODS else []
    raise KubectlError(f"timed out waiting for the condition on {', '.join([*names[:SHOWN_PODS], *more])}")


def watch(cluster: Cluster, seconds: float) -> "Iterator[dict[str, Any]]":
    """All pods of the namespace, then each that changes. The server ends the watch; if it ends it early, all again."""
    import json

    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        connection = cluster.request(f"{cluster.pods()}?watch=true&timeoutSeconds={max(int(left), 1)}")
        for line in lines(connection, lambda: end - time.monotonic()):
            event = json.loads(line)
            if event["type"] == "ERROR":
                break
            yield event["object"]


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
    except TimeoutError:
        return


def has(pod: "dict[str, Any]", condition: str) -> bool:
    found = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == condition and one["status"] == "True" for one in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
