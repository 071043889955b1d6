"""Facts about Services that server, node and proxy of the embedded cluster share."""

HEADLESS = "None"
"""The clusterIP of a Service without an address of its own."""


def is_resolvable(external_name: str) -> bool:
    """Whether a hosts file can have the name of an ExternalName Service: an address, localhost, a name of the cluster.
    All others would need a name server."""
    name = external_name.removesuffix(".")
    return name.replace(".", "").isdecimal() or name == "localhost" or name.endswith((".svc", ".svc.cluster.local"))
