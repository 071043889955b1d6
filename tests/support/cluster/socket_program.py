"""A program that makes socket calls and prints what the kernel answers; it runs in pods and in network namespaces.

Its input is a file with lists of steps: `["open", "tcp4"]`, `["bind", 0, "any", 20001]`, ... Sockets are numbered in
the order in which they were opened. Addresses are names, because a pod has its own in their place. Standard library
only.
"""

import contextlib
import errno
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

KINDS = {
    "tcp4": (socket.AF_INET, socket.SOCK_STREAM),
    "tcp6": (socket.AF_INET6, socket.SOCK_STREAM),
    "udp4": (socket.AF_INET, socket.SOCK_DGRAM),
    "udp6": (socket.AF_INET6, socket.SOCK_DGRAM),
}
HOSTS = {
    socket.AF_INET: {"any": "0.0.0.0", "loopback": "127.0.0.1", "other": "127.0.0.9", "foreign": "192.0.2.1"},  # noqa: S104
    socket.AF_INET6: {"any": "::", "loopback": "::1", "other": "::ffff:127.0.0.9", "foreign": "2001:db8::1"},
}
OPTIONS = {
    "reuse address": (socket.SOL_SOCKET, socket.SO_REUSEADDR),
    "reuse port": (socket.SOL_SOCKET, socket.SO_REUSEPORT),
    "only ipv6": (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY),
}


class Steps:
    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []

    def open(self, kind: str) -> None:
        self.sockets.append(socket.socket(*KINDS[kind]))

    def set(self, number: int, option: str, value: int) -> None:
        self.sockets[number].setsockopt(*OPTIONS[option], value)

    def bind(self, number: int, host: str, port: int) -> str:
        own = self.sockets[number]
        own.bind((HOSTS[own.family][host], port))
        bound = own.getsockname()[1]
        return "a free port" if port == 0 and bound > 0 else bound

    def listen(self, number: int) -> None:
        self.sockets[number].listen()

    def connect(self, number: int, host: str, port: int) -> int:
        own = self.sockets[number]
        own.setblocking(True)
        own.connect((HOSTS[own.family][host], port))
        return int(own.getpeername()[1])

    def begin(self, number: int, host: str, port: int) -> str:
        """Connects without waiting; the result is what comes of it."""
        own = self.sockets[number]
        own.setblocking(False)
        try:
            at_once = own.connect_ex((HOSTS[own.family][host], port))
        finally:
            own.setblocking(True)
        if at_once != errno.EINPROGRESS:
            return errno.errorcode.get(at_once, "done")
        with contextlib.suppress(OSError):
            own.send(b"")
        return f"begun: {errno.errorcode.get(own.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 'done')}"

    def exchange(self, listener: int, client: int) -> str:
        """What a listener receives from a connected socket."""
        server = self.sockets[listener]
        server.settimeout(0.02)
        connection, _ = server.accept()
        with connection:
            self.sockets[client].sendall(b"hello")
            return connection.recv(5).decode()

    def send(self, number: int, host: str, port: int) -> int:
        own = self.sockets[number]
        return own.sendto(b"datagram", (HOSTS[own.family][host], port))

    def receive(self, number: int) -> str:
        own = self.sockets[number]
        own.settimeout(0.02)
        return own.recv(100).decode()

    def close(self, number: int) -> None:
        self.sockets[number].close()


def run(steps: list[list[Any]]) -> list[Any]:
    program, results = Steps(), []
    for name, *arguments in steps:
        step: Callable[..., Any] = getattr(program, name)
        try:
            results.append(step(*arguments))
        except TimeoutError:
            results.append("timeout")
        except OSError as error:
            results.append(errno.errorcode[error.errno or 0])
    for one in program.sockets:
        one.close()
    return results


def main(path: str) -> None:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - standard library only, as small as a supervisor's
        cases = json.load(file)
    for case in cases:
        sys.stdout.write(json.dumps(run(case)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
