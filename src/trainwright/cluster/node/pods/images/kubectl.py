#!/usr/bin/env python3
"""The kubectl of launchers on the embedded cluster: `exec` and `wait`, with the pod's service account.

It is copied into pods that run any Python, so it needs nothing but a standard library of version 3.8.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from http.client import HTTPSConnection, parse_headers
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROTOCOL = "v5.channel.k8s.io"
POLL_SECONDS = 0.1
USAGE = (
    "this kubectl knows `exec POD [-c CONTAINER] -- COMMAND` and "
    "`wait --for=condition=TYPE [--timeout=10s] pod/NAME...`"
)

STDOUT, STDERR, STATUS = 1, 2, 3
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class KubectlError(Exception):
    """One line for the user."""


def main(arguments: list[str]) -> int:
    try:
        options, words, command = parse(arguments)
        verb = words.pop(0) if words else ""
        cluster = Cluster(options)
        if verb == "exec" and len(words) == 1 and command:
            return run(cluster, words[0], options.get("container", ""), command)
        if verb == "wait" and words and "for" in options:
            return wait(cluster, words, options)
        raise KubectlError(USAGE)
    except KubectlError as error:
        say(f"error: {error}")
    except OSError as error:
        say(f"error: the API server does not answer: {error}")
    return 1


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def parse(arguments: list[str]) -> tuple[dict[str, str], list[str], list[str]]:
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


class Cluster:
    """The API server as a pod sees it."""

    def __init__(self, options: dict[str, str]) -> None:
        try:
            self.host, self.port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
        except KeyError as error:
            raise KubectlError(f"{error} is not set: this program runs in pods") from None
        self.token = read("token")
        self.namespace = options.get("namespace") or read("namespace")
        self.tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))

    def get(self, path: str) -> Any:
        connection = HTTPSConnection(self.host, self.port, context=self.tls, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise KubectlError(problem(body))
        return json.loads(body)

    def open_websocket(self, path: str) -> tuple[ssl.SSLSocket, BinaryIO]:
        """A socket after the handshake: to send, and to read."""
        plain = socket.create_connection((self.host, self.port), timeout=30)
        connection = self.tls.wrap_socket(plain, server_hostname=self.host)
        headers = {
            "Host": f"{self.host}:{self.port}",
            "Authorization": f"Bearer {self.token}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Protocol": PROTOCOL,
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        connection.sendall("\r\n".join(lines).encode())
        stream = connection.makefile("rb")
        code = stream.readline().split()[1:2]
        answered = parse_headers(stream)
        if code != [b"101"]:
            raise KubectlError(problem(stream.read(int(answered.get("Content-Length") or 0))))
        connection.settimeout(None)
        return connection, stream


def read(name: str) -> str:
    try:
        return (SERVICE_ACCOUNT / name).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise KubectlError(f"the pod has no service account: {error}") from None


def problem(body: bytes) -> str:
    """The message of the API server."""
    try:
        status = json.loads(body)
        return f"Error from server ({status['reason']}): {status['message']}"
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip() or "the API server gave no reason"


def run(cluster: Cluster, pod: str, container: str, command: list[str]) -> int:
    """Runs a command in a container and returns its exit code."""
    query = [("command", word) for word in command] + [("stdout", "true"), ("stderr", "true")]
    if container:
        query.append(("container", container))
    name = quote(pod.removeprefix("pod/"))
    connection, stream = cluster.open_websocket(
        f"/api/v1/namespaces/{quote(cluster.namespace)}/pods/{name}/exec?{urlencode(query)}"
    )
    outputs = {STDOUT: sys.stdout.buffer, STDERR: sys.stderr.buffer}
    for payload in messages(connection, stream):
        channel, data = payload[0], payload[1:]
        if channel in outputs:
            outputs[channel].write(data)
            outputs[channel].flush()
        elif channel == STATUS:
            return exit_code(json.loads(data))
    raise KubectlError("the connection ended before the command did")


def exit_code(status: dict[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode":
            code = int(cause["message"])
            say(f"command terminated with exit code {code}")
            return code
    raise KubectlError(status.get("message") or "the command could not be run")


def messages(connection: ssl.SSLSocket, stream: BinaryIO) -> Iterator[bytes]:
    """The payloads of all messages until the server closes the connection."""
    message = b""
    while True:
        head = stream.read(2)
        if len(head) < 2:
            return
        final, kind, length = head[0] & 0x80, head[0] & 0x0F, head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(stream.read(2 if length == 126 else 8), "big")
        payload = stream.read(length)
        if kind == CLOSE:
            return
        if kind == PING:
            connection.sendall(masked(PONG, payload))
        elif kind != PONG:
            message += payload
            if final:
                if message:
                    yield message
                message = b""


def masked(kind: int, payload: bytes) -> bytes:
    """A short frame of a client. A mask of zeros leaves the payload as it is."""
    return bytes([0x80 | kind, 0x80 | len(payload), 0, 0, 0, 0]) + payload


def wait(cluster: Cluster, resources: list[str], options: dict[str, str]) -> int:
    """Waits until every pod has a condition."""
    condition = options["for"].partition("=")[2]
    missing = {name[4:] for name in resources if name.startswith("pod/")}
    if not condition or len(missing) < len(set(resources)):
        raise KubectlError(USAGE)
    end = time.monotonic() + float(options.get("timeout", "30s").rstrip("s"))
    while True:
        pods = cluster.get(f"/api/v1/namespaces/{quote(cluster.namespace)}/pods")["items"]
        missing -= {pod["metadata"]["name"] for pod in pods if has(pod, condition)}
        if not missing:
            return 0
        if time.monotonic() >= end:
            names = ", ".join(f"pods/{name}" for name in sorted(missing))
            raise KubectlError(f"timed out waiting for the condition on {names}")
        time.sleep(POLL_SECONDS)


def has(pod: dict[str, Any], condition: str) -> bool:
    found = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == condition and one["status"] == "True" for one in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
