"""The environment variables by which programs in pods find Services, as the kubelet defines them."""

from urllib.parse import urlsplit

from trainwright.objects import Object

API_SERVER_HOST = "KUBERNETES_SERVICE_HOST"


def api_server_variables(url: str) -> dict[str, str]:
    """The Service `kubernetes`: clients in pods find the API server by KUBERNETES_SERVICE_HOST and _PORT."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    address = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    return {
        API_SERVER_HOST: host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": address,
        f"KUBERNETES_PORT_{port}_TCP": address,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": str(port),
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }


def service_variables(service: Object) -> dict[str, str]:
    """Empty for a Service without an address of its own."""
    spec = service["spec"]
    address, ports = spec.get("clusterIP"), spec.get("ports") or []
    if not address or address == "None" or not ports:
        return {}
    prefix = _variable(service["metadata"]["name"])
    variables = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0]["port"])}
    for port in ports:
        if name := port.get("name"):
            variables[f"{prefix}_SERVICE_PORT_{_variable(name)}"] = str(port["port"])
    for index, port in enumerate(ports):
        protocol, number = str(port.get("protocol") or "TCP"), str(port["port"])
        url = f"{protocol.lower()}://{address}:{number}"
        if index == 0:
            variables[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{number}_{protocol}"
        variables |= {link: url, f"{link}_PROTO": protocol.lower(), f"{link}_PORT": number, f"{link}_ADDR": address}
    return variables


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
