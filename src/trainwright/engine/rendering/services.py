"""The Service of a rank: headless and with the name of the pod, so that peers can resolve it."""

from collections.abc import Iterable

from trainwright.engine.children.labels import rank_labels
from trainwright.engine.children.ranks import Rank
from trainwright.engine.derived_facts import Facts
from trainwright.engine.inherited_ports import PORTS, format_ports
from trainwright.engine.rendering.pods import container_ports
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference


def render_service(facts: Facts, rank: Rank) -> Object:
    job = facts.job
    labels = rank_labels(job, rank)
    declared = job.replicas[rank.role].main_container.get("ports") or []
    metadata: Object = {
        "name": job.child_name(rank.role, rank.index),
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [controller_reference(job.raw)],
    }
    if port := facts.inherited_ports.get(rank):
        metadata["annotations"] = {PORTS: format_ports(job, {rank: port})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": labels,
            "ports": _service_ports(container_ports(facts, rank, declared)),
        },
    }


def _service_ports(container_ports: Iterable[Object]) -> list[Object]:
    """All ports of the container in its order, each with a name, which a Service with several ports requires.

    A number that the container lists twice occurs once, with the declared name if there is one.
    """
    ports: dict[tuple[int, str], Object] = {}
    for declared in container_ports:
        number, protocol = declared["containerPort"], declared.get("protocol") or "TCP"
        known = ports.get((number, protocol))
        if known is None:
            ports[number, protocol] = _service_port(declared, number, protocol)
        elif declared.get("name") and known["name"] == _default_name(number, protocol):
            known["name"] = declared["name"]
    return list(ports.values())


def _service_port(declared: Object, number: int, protocol: str) -> Object:
    port: Object = {"name": declared.get("name") or _default_name(number, protocol), "port": number}
    if declared.get("protocol"):
        port["protocol"] = protocol
    return port


def _default_name(number: int, protocol: str) -> str:
    return f"port-{number}" if protocol == "TCP" else f"port-{number}-{protocol.lower()}"
