"""The environment variables by which programs in pods find Services, as the kubelet defines them."""

from urllib.parse import urlsplit


def api_server_variables(url: str) -> dict[str, str]:
    """Of the Service `kubernetes`: clients in pods find the API server by KUBERNETES_SERVICE_HOST and _PORT."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    address = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": address,
        f"KUBERNETES_PORT_{port}_TCP": address,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": str(port),
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }
