"""The pod of a rank: the template of its role, with labels, owner and what the framework adds."""

from collections.abc import Callable
from functools import partial

from trainwright.api.labels import JOB_ROLE
from trainwright.engine.children.labels import earlier_labels, rank_labels
from trainwright.engine.children.ranks import Rank
from trainwright.engine.derived_facts import Facts
from trainwright.engine.framework import PodShape
from trainwright.engine.inherited_ports import PORTS, format_ports
from trainwright.engine.rendering.init_containers import init_containers, with_free_names
from trainwright.objects import Object, node_annotations
from trainwright.objects.metadata import controller_reference


class PodRenderer:
    """Renders the pods of one plan. Their common values are computed with the plan; each pod is rendered when it is
    written."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._shape_of: Callable[[Rank], PodShape] | None = None

    def render_later(self, rank: Rank) -> Callable[[], Object]:
        """Errors in the common values are raised here, before anything is written."""
        if self._shape_of is None:
            self._shape_of = self._facts.framework.pod_shapes(
                self._facts.job, self._facts.addresses, self._facts.settings
            )
        return partial(self._render, self._shape_of, rank)

    def _render(self, shape_of: Callable[[Rank], PodShape], rank: Rank) -> Object:
        facts, shape = self._facts, shape_of(rank)
        template = facts.job.replicas[rank.role].template
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": facts.job.child_name(rank.role, rank.index),
                "namespace": facts.job.namespace,
                **_metadata(facts, rank, template.get("metadata") or {}),
                "ownerReferences": [controller_reference(facts.job.raw)],
            },
            "spec": _spec(facts, rank, template["spec"], shape),
        }


def container_ports(facts: Facts, rank: Rank, declared: list[Object]) -> list[Object]:
    """The declared ports; an inherited port is in place of the one with the kind's port name."""
    inherited = facts.inherited_ports.get(rank)
    if inherited is None:
        return declared
    return [
        {**port, "containerPort": inherited} if port.get("name") == facts.job.kind.port_name else port
        for port in declared
    ]


def _spec(facts: Facts, rank: Rank, template: Object, shape: PodShape) -> Object:
    spec = {
        **template,
        "containers": _containers(facts, rank, template["containers"], shape),
        "restartPolicy": _restart_policy(facts, rank),
    }
    if added := [*shape.init_containers, *init_containers(facts, rank)]:
        spec["initContainers"] = [*(template.get("initContainers") or []), *with_free_names(added, template)]
    if shape.volumes:
        spec["volumes"] = [*(template.get("volumes") or []), *shape.volumes]
    if shape.service_account and not (template.get("serviceAccountName") or template.get("serviceAccount")):
        spec["serviceAccountName"] = shape.service_account
    return spec


def _containers(facts: Facts, rank: Rank, containers: list[Object], shape: PodShape) -> list[Object]:
    main = facts.job.replicas[rank.role].main_container
    rendered = []
    for container in containers:
        env = [*shape.env, *shape.main_env] if container is main else shape.env
        ours = {**container}
        if env:
            ours["env"] = [*(container.get("env") or []), *env]
        if container is main:
            if container.get("ports"):
                ours["ports"] = container_ports(facts, rank, container["ports"])
            if shape.main_mounts:
                ours["volumeMounts"] = [*(container.get("volumeMounts") or []), *shape.main_mounts]
            if shape.main_command and not container.get("command"):
                ours["command"] = list(shape.main_command)
                ours.pop("args", None)
                if shape.main_args:
                    ours["args"] = list(shape.main_args)
        rendered.append(ours)
    return rendered


def _restart_policy(facts: Facts, rank: Rank) -> str:
    """Never if the operator decides about restarts, or if a container must not restart without its peers."""
    policy = facts.job.replicas[rank.role].restart_policy
    return "Never" if policy == "ExitCode" or facts.group_restart else policy


def _metadata(facts: Facts, rank: Rank, template: Object) -> Object:
    master = facts.framework.is_master(facts.job, rank)
    labels = {
        **earlier_labels(facts.job, rank, master=master),
        **(template.get("labels") or {}),
        **rank_labels(facts.job, rank),
    }
    if master:
        labels[JOB_ROLE] = "master"
    metadata: Object = {"labels": labels}
    written = {key: value for key, value in (template.get("annotations") or {}).items() if key != PORTS}
    if annotations := {**written, **_annotations(facts)}:
        metadata["annotations"] = annotations
    if template.get("finalizers"):
        metadata["finalizers"] = template["finalizers"]
    return metadata


def _annotations(facts: Facts) -> dict[str, str]:
    of_job = facts.job.metadata.annotations
    annotations = {key: value for key, value in of_job.items() if key.startswith(node_annotations.PREFIX)}
    if facts.inherited_ports:
        annotations[PORTS] = format_ports(facts.job, facts.inherited_ports)
    if facts.settings.one_machine:
        annotations[node_annotations.REPLICAS] = str(facts.job.total_replicas)
    return annotations
