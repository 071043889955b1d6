"""The service of one rank: headless, named like the pod, so that peers find it by name."""

from collections.abc import Iterable

from trainwright.api.defaults import default_container
from trainwright.engine.draft import Draft
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.labels import PORTS, format_ports, rank_labels
from trainwright.engine.rendering.pods import chosen_ports
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference


def render_service(draft: Draft, rank: Rank) -> Object:
    job = draft.job
    labels = rank_labels(job, rank)
    containers = draft.replicas[rank.role].template["spec"]["containers"]
    ports = chosen_ports(draft, rank.role, default_container(containers, job.kind)["ports"])
    metadata: Object = {
        "name": draft.name_of(rank),
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [controller_reference(job.raw)],
    }
    if draft.ports:
        metadata["annotations"] = {PORTS: format_ports(draft.ports)}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"clusterIP": "None", "selector": labels, "ports": _service_ports(ports)},
    }


def _service_ports(container_ports: Iterable[Object]) -> list[Object]:
    """All ports of the container in its order, each with a name: a service with several ports demands one.

    A number that the container lists twice appears once, under its name if it has one.
    """
    ports: dict[tuple[int, str], Object] = {}
    for declared in container_ports:
        number, protocol = declared["containerPort"], declared.get("protocol") or "TCP"
        known = ports.get((number, protocol))
        if known is None:
            ports[number, protocol] = _service_port(declared, number, protocol)
        elif declared.get("name") and known["name"] == _made_up_name(number, protocol):
            known["name"] = declared["name"]
    return list(ports.values())


def _service_port(declared: Object, number: int, protocol: str) -> Object:
    port: Object = {"name": declared.get("name") or _made_up_name(number, protocol), "port": number}
    if declared.get("protocol"):
        port["protocol"] = protocol
    return port


def _made_up_name(number: int, protocol: str) -> str:
    return f"port-{number}" if protocol == "TCP" else f"port-{number}-{protocol.lower()}"
