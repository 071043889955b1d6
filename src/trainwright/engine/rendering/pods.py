"""The pod of one rank: the user's template, untouched, plus labels, owner, environment and the container that waits."""

from trainwright.api.defaults import default_container
from trainwright.api.labels import JOB_ROLE
from trainwright.engine.draft import Draft
from trainwright.engine.policies import gang
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.init_containers import init_containers
from trainwright.engine.rendering.labels import PORTS, earlier_labels, format_ports, rank_labels
from trainwright.objects import Object, node_annotations
from trainwright.objects.metadata import controller_reference


def render_pod(draft: Draft, rank: Rank) -> Object:
    job, replica = draft.job, draft.replicas[rank.role]
    template = replica.template
    spec = {
        **template["spec"],
        "containers": _containers(draft, rank, template["spec"]["containers"]),
        "restartPolicy": _restart_policy(draft, replica.restart_policy),
    }
    if waiting := init_containers(draft, rank):
        spec["initContainers"] = [*(spec.get("initContainers") or []), *waiting]
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": draft.name_of(rank),
            "namespace": job.namespace,
            **_metadata(draft, rank, template.get("metadata") or {}),
            "ownerReferences": [controller_reference(job.raw)],
        },
        "spec": spec,
    }
    gang.decorate(draft, rank.role, pod)
    return pod


def _restart_policy(draft: Draft, policy: str) -> str:
    """Where we decide about a restart, or a container must not come back without its peers, the kubelet must not."""
    return "Never" if policy == "ExitCode" or draft.group_restart else policy


def _metadata(draft: Draft, rank: Rank, template: Object) -> Object:
    master = draft.framework.is_master(draft.job, rank)
    labels = {
        **earlier_labels(draft.job, rank, master=master),
        **(template.get("labels") or {}),
        **rank_labels(draft.job, rank),
    }
    if master:
        labels[JOB_ROLE] = "master"
    metadata: Object = {"labels": labels}
    written = {key: value for key, value in (template.get("annotations") or {}).items() if key != PORTS}
    if annotations := {**written, **_annotations(draft, rank)}:
        metadata["annotations"] = annotations
    if template.get("finalizers"):
        metadata["finalizers"] = template["finalizers"]
    return metadata


def _annotations(draft: Draft, rank: Rank) -> dict[str, str]:
    job_annotations = draft.job.metadata.annotations
    annotations = {key: value for key, value in job_annotations.items() if key.startswith(node_annotations.PREFIX)}
    if draft.ports:
        annotations[PORTS] = format_ports(draft.ports)
        if rank.index == 0 and rank.role in draft.ports:
            annotations[node_annotations.LISTEN_PORTS] = str(draft.ports[rank.role])
    return annotations


def _containers(draft: Draft, rank: Rank, containers: list[Object]) -> list[Object]:
    environment = draft.framework.environment(draft.job, rank, draft.addresses)
    trains = default_container(containers, draft.job.kind)
    rendered = []
    for container in containers:
        ours = {**container}
        if environment:
            ours["env"] = [*(container.get("env") or []), *environment]
        if container is trains:
            ours["ports"] = chosen_ports(draft, rank.role, container["ports"])
        rendered.append(ours)
    return rendered


def chosen_ports(draft: Draft, role: str, declared: list[Object]) -> list[Object]:
    """The container's ports, with the chosen port in place of the one that the role would listen on."""
    chosen = draft.ports.get(role)
    if chosen is None:
        return declared
    listens_on = draft.framework.listeners(draft.job).get(role)
    name = draft.job.kind.port_name
    return [
        {**port, "containerPort": chosen} if port.get("name") == name and port["containerPort"] == listens_on else port
        for port in declared
    ]
