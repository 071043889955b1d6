"""The checks of probes and hooks over the network: an HTTP request, a TCP connection, a gRPC health check.

They run in a process of their own, which may block; its exit status is the outcome. Texts are the kubelet's. Standard
library only, and little of it: a pod with a probe forks every few seconds.
"""

from __future__ import annotations

import json
import socket
import time

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from trainwright.cluster.node.supervisor.pod_json import HandlerJson, HttpJson, TcpJson

EXIT_SUCCESS, EXIT_FAILURE, EXIT_WARNING, EXIT_UNKNOWN = 0, 1, 2, 3

OUTCOMES = {EXIT_SUCCESS: "success", EXIT_FAILURE: "failure", EXIT_WARNING: "warning", EXIT_UNKNOWN: "unknown"}

_MAX_REDIRECTS = 10
_MAX_HEAD = 64 * 1024
_MAX_BODY = 10 * 1024
_MAX_QUOTED = 200
_AWAITING_HEADERS = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"


class _CheckError(Exception):
    """Why a check failed."""


def check(handler: HandlerJson, seconds: float | None) -> tuple[int, str]:
    """Exit status and text."""
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        if "tcp" in handler:
            _connect(handler["tcp"], deadline).close()
            return EXIT_SUCCESS, ""
        if "grpc" in handler:
            from trainwright.cluster.node.supervisor.lifecycle import grpc_health  # few probes need it

            with _connect(handler["grpc"], deadline) as connection:
                return grpc_health.check(connection, _address(handler["grpc"]), handler["grpc"]["service"])
        return _get(handler["http"], deadline)
    except (_CheckError, OSError) as error:
        return EXIT_FAILURE, str(error)


def timeout_text(handler: HandlerJson) -> str:
    if "tcp" in handler:
        return f"dial tcp {_address(handler['tcp'])}: i/o timeout"
    if "grpc" in handler:
        address = _address(handler["grpc"])
        return f'timeout: failed to connect service "{address}" within 1s: context deadline exceeded'
    return f'Get "{_url(handler["http"])}": {_AWAITING_HEADERS}'


def _get(request: HttpJson, deadline: float | None) -> tuple[int, str]:
    for _ in range(_MAX_REDIRECTS):
        try:
            status, headers, body = _exchange(request, deadline)
        except (_CheckError, OSError) as error:
            return EXIT_FAILURE, f'Get "{_url(request)}": {error}'
        if 200 <= status < 300:
            return EXIT_SUCCESS, body
        if not 300 <= status < 400:
            return EXIT_FAILURE, f"HTTP probe failed with statuscode: {status}"
        target = _redirected(request, headers.get("location", ""))
        if target is None:
            return EXIT_WARNING, f"Probe terminated redirects, Response body: {body}"
        request = target
    return EXIT_FAILURE, f'Get "{request["path"]}": stopped after {_MAX_REDIRECTS} redirects'


def _redirected(request: HttpJson, location: str) -> HttpJson | None:
    """The next request; None if the redirect leads to another host."""
    from urllib.parse import urljoin, urlsplit  # few programs redirect

    target = urlsplit(urljoin(_url(request), location))
    if not location or target.hostname != str(request["host"]).lower():
        return None
    path = (target.path or "/") + (f"?{target.query}" if target.query else "")
    port = target.port or (443 if target.scheme == "https" else 80)
    return {**request, "scheme": target.scheme, "port": port, "path": path}


def _exchange(request: HttpJson, deadline: float | None) -> tuple[int, dict[str, str], str]:
    """Status, headers by lower-case name, and the beginning of the body."""
    connection = _connect(request, deadline)
    if request["scheme"] == "https":
        connection = _wrap_tls(connection)
    try:
        connection.sendall(_render(request))
        answer = b""
        while b"\r\n\r\n" not in answer and len(answer) < _MAX_HEAD:
            data = _receive(connection, deadline)
            if not data:
                break
            answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if not first:
            raise _CheckError("EOF")
        if not words[0].startswith("HTTP/") or len(words) < 2 or not _is_status(words[1]):
            text = f'malformed HTTP response "{first[:_MAX_QUOTED]}"'
            raise _CheckError(f"net/http: HTTP/1.x transport connection broken: {text}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        while len(body) < _MAX_BODY and (data := _receive(connection, deadline)):
            body += data
        return int(words[1]), headers, body[:_MAX_BODY].decode(errors="replace")
    finally:
        connection.close()


def _is_status(word: str) -> bool:
    return len(word) == 3 and word.isascii() and word.isdigit()


def _render(request: HttpJson) -> bytes:
    given = {name.lower() for name, _ in request["headers"]}
    for name, value in request["headers"]:
        if not name or any(not "!" <= character <= "~" or character == ":" for character in name):
            raise _CheckError(f"net/http: invalid header field name {json.dumps(name)}")
        if any((character < " " and character != "\t") or character == "\x7f" for character in value):
            raise _CheckError(f'net/http: invalid header field value for "{name}"')
    lines = [f"GET {_escaped(request['path'])} HTTP/1.1"]
    if "host" not in given:
        lines.append(f"Host: {_address(request)}")
    if "user-agent" not in given:
        lines.append(f"User-Agent: {request['userAgent']}")
    if "accept" not in given:
        lines.append("Accept: */*")
    lines += [f"{name}: {value}" for name, value in request["headers"] if value or name.lower() != "accept"]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode()


def _escaped(path: str) -> str:
    """Spaces and control characters would begin another part of the request."""
    return "".join(f"%{ord(char):02X}" if char <= " " or char == "\x7f" else char for char in path)


def _wrap_tls(connection: socket.socket) -> socket.socket:
    import ssl  # few probes need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as the kubelet: the address is the pod's
    try:
        return context.wrap_socket(connection)
    except ssl.SSLError as error:
        if error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
            raise _CheckError("http: server gave HTTP response to HTTPS client") from error
        raise _CheckError(f"remote error: tls: {error.reason}") from error


def _connect(target: TcpJson, deadline: float | None) -> socket.socket:
    address = _address(target)
    try:
        connection = socket.create_connection((target["host"], target["port"]), _left(deadline))
    except TimeoutError as error:
        raise _CheckError(f"dial tcp {address}: i/o timeout") from error
    except socket.gaierror as error:
        raise _CheckError(f"dial tcp: lookup {target['host']}: no such host") from error
    except OSError as error:
        raise _CheckError(f"dial tcp {address}: connect: {(error.strerror or str(error)).lower()}") from error
    return connection


def _receive(connection: socket.socket, deadline: float | None) -> bytes:
    connection.settimeout(_left(deadline))
    try:
        return connection.recv(65536)
    except TimeoutError as error:
        raise _CheckError(_AWAITING_HEADERS) from error
    except OSError as error:
        raise _CheckError(f"read: {(error.strerror or str(error)).lower()}") from error


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.001, deadline - time.monotonic())


def _url(request: HttpJson) -> str:
    return f"{request['scheme']}://{_address(request)}{request['path']}"


def _address(target: TcpJson) -> str:
    host, port = target["host"], target["port"]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
