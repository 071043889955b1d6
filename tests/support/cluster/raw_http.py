"""HTTP requests whose target reaches the server byte by byte; other clients clean paths and escape them again."""

import ssl
from collections.abc import Mapping
from http.client import HTTPSConnection

from trainwright.kube.client.kubeconfig import ClusterConfig


def status_of(
    config: ClusterConfig, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> int:
    """The status code; the body, which may have no end, is not read."""
    host, _, port = config.server.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cadata=(config.ca_data or b"").decode())
    connection = HTTPSConnection(host, int(port), context=context, timeout=30)
    try:
        sent = {"Authorization": f"Bearer {config.token}", "Accept": "application/json", **(headers or {})}
        connection.request(method, target, body, headers=sent)
        return connection.getresponse().status
    finally:
        connection.close()
