"""HTTP, TCP and gRPC checks against real listeners, with the texts of the kubelet."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from trainwright.cluster import pki
from trainwright.cluster.node.supervisor.lifecycle import network_handlers
from trainwright.cluster.node.supervisor.lifecycle.network_handlers import EXIT_FAILURE, EXIT_SUCCESS, EXIT_WARNING
from trainwright.cluster.node.supervisor.pod_json import HandlerJson

HOST = "127.0.0.1"


class Program(BaseHTTPRequestHandler):
    requests: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        Program.requests.append((self.path, dict(self.headers.items())))
        target = {"/moved": "/healthy", "/elsewhere": "http://example.invalid/", "/loop": "/loop"}.get(self.path)
        self.send_response(301 if target else int(self.path.strip("/")) if self.path.strip("/").isdecimal() else 200)
        if target:
            self.send_header("Location", target)
        self.end_headers()
        self.wfile.write(b"fine")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    Program.requests = []
    with ThreadingHTTPServer((HOST, 0), Program) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def http(port: int, path: str = "/healthy", *, scheme: str = "http", **headers: str) -> HandlerJson:
    return {
        "http": {
            "scheme": scheme,
            "host": HOST,
            "port": port,
            "path": path,
            "userAgent": "kube-probe/1.35",
            "headers": [[name.replace("_", "-"), value] for name, value in headers.items()],
        }
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/healthy", (EXIT_SUCCESS, "fine")),
        ("/404", (EXIT_FAILURE, "HTTP probe failed with statuscode: 404")),
        ("/503", (EXIT_FAILURE, "HTTP probe failed with statuscode: 503")),
        ("/moved", (EXIT_SUCCESS, "fine")),
        ("/elsewhere", (EXIT_WARNING, "Probe terminated redirects, Response body: fine")),
        ("/loop", (EXIT_FAILURE, 'Get "/loop": stopped after 10 redirects')),
    ],
)
def test_an_http_check_succeeds_by_its_status_code(path: str, expected: tuple[int, str]) -> None:
    with serving() as port:
        assert network_handlers.check(http(port, path), 5) == expected


def test_the_headers_of_a_check_are_those_of_the_kubelet_unless_the_probe_sets_them() -> None:
    with serving() as port:
        network_handlers.check(http(port), 5)
        network_handlers.check(http(port, X_Own="1", Host="service", User_Agent="mine", Accept=""), 5)
        (_, usual), (_, own) = Program.requests
    assert usual == {
        "Host": f"{HOST}:{port}",
        "User-Agent": "kube-probe/1.35",
        "Accept": "*/*",
        "Connection": "close",
    }
    assert own == {"X-Own": "1", "Host": "service", "User-Agent": "mine", "Connection": "close"}


def test_https_accepts_any_certificate_and_names_a_plain_server(tmp_path: Path) -> None:
    tls, _ = pki.server_context(tmp_path)
    with serving(tls) as port:
        assert network_handlers.check(http(port, scheme="https"), 5) == (EXIT_SUCCESS, "fine")
    with serving() as port:
        code, text = network_handlers.check(http(port, scheme="https"), 5)
    url = f"https://{HOST}:{port}/healthy"
    assert (code, text) == (EXIT_FAILURE, f'Get "{url}": http: server gave HTTP response to HTTPS client')


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Accepts connections and never answers."""
    with socket.create_server((HOST, 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_refused_connection_is_a_failure_with_its_address(closed_port: int) -> None:
    refused = f"dial tcp {HOST}:{closed_port}: connect: connection refused"
    tcp: HandlerJson = {"tcp": {"host": HOST, "port": closed_port}}
    assert network_handlers.check(tcp, 5) == (EXIT_FAILURE, refused)
    found = network_handlers.check(http(closed_port), 5)
    assert found == (EXIT_FAILURE, f'Get "http://{HOST}:{closed_port}/healthy": {refused}')


def test_a_server_that_does_not_answer_in_time_is_a_failure(silent_port: int) -> None:
    code, text = network_handlers.check(http(silent_port), 0.05)
    late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    assert (code, text) == (EXIT_FAILURE, f'Get "http://{HOST}:{silent_port}/healthy": {late}')


def test_a_tcp_check_succeeds_if_the_port_can_be_opened(silent_port: int) -> None:
    assert network_handlers.check({"tcp": {"host": HOST, "port": silent_port}}, 5) == (EXIT_SUCCESS, "")


@contextmanager
def grpc_server(*frames: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answers one connection with these HTTP/2 frames."""
    received: list[bytes] = []
    with socket.create_server((HOST, 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(b"".join(frames))
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1], received
        thread.join()


def frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (b"\x08\x01", (EXIT_SUCCESS, "")),
        (b"\x08\x02", (EXIT_FAILURE, 'service unhealthy (responded with "NOT_SERVING")')),
        (b"", (EXIT_FAILURE, 'service unhealthy (responded with "UNKNOWN")')),
    ],
)
def test_a_grpc_check_asks_for_the_health_of_a_service(status: bytes, expected: tuple[int, str]) -> None:
    settings, headers = frame(4, b"", stream=0), frame(1, b"", flags=4)
    message = frame(0, b"\0" + len(status).to_bytes(4, "big") + status)
    with grpc_server(settings, headers, message, frame(1, b"", flags=5)) as (port, received):
        check: HandlerJson = {"grpc": {"host": HOST, "port": port, "service": "model"}}
        assert network_handlers.check(check, 5) == expected
    assert b"/grpc.health.v1.Health/Check" in received[0]
    assert received[0].endswith(b"\0\0\0\0\x07\x0a\x05model")


def test_a_grpc_server_without_health_is_a_failure() -> None:
    with grpc_server(frame(4, b"", stream=0), frame(1, b"", flags=5)) as (port, _):
        code, text = network_handlers.check({"grpc": {"host": HOST, "port": port, "service": ""}}, 5)
    assert (code, text.partition(":")[0]) == (EXIT_FAILURE, "error")
