"""Facts about Services that server, node and proxy of the embedded cluster share."""

from trainwright.objects import Object

HEADLESS = "None"
"""The clusterIP of a Service without an address of its own."""
SERVICE_NAME = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""


def service_of_slice(endpoint_slice: Object) -> list[str]:
    """The NAMESPACE/NAME of its Service, if it has one; an index of stores."""
    metadata = endpoint_slice["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_NAME)
    return [f"{metadata['namespace']}/{name}"] if name else []


def is_resolvable(external_name: str) -> bool:
    """Whether a hosts file can have the name of an ExternalName Service: an address, localhost, a name of the cluster.
    All others would need a name server."""
    name = external_name.removesuffix(".")
    return name.replace(".", "").isdecimal() or name == "localhost" or name.endswith((".svc", ".svc.cluster.local"))
