"""Defaults of fields that are not set. They are never written back to the cluster."""

from msgspec.structs import replace

from trainwright.api.kinds import Kind, ReplicaSpecs, Role
from trainwright.api.legacy import canonical_roles, merged_run_policy
from trainwright.api.types import DEFAULT_CLEAN_POD_POLICY, EarlierRunPolicy, ReplicaSpec, RunPolicy
from trainwright.objects import Object


def complete_run_policy(current: RunPolicy, earlier: EarlierRunPolicy) -> RunPolicy:
    policy = merged_run_policy(current, earlier)
    return policy if policy.clean_pod_policy is not None else replace(policy, clean_pod_policy=DEFAULT_CLEAN_POD_POLICY)


def complete_replicas(replicas: ReplicaSpecs, kind: Kind) -> dict[str, ReplicaSpec]:
    """Replicas by role, in the kind's order and spelling. Templates are copied only where they change."""
    return {
        name: _complete_replica(replica, role, kind) if (role := kind.role(name)) else replica
        for name, replica in canonical_roles(replicas, kind).items()
    }


def main_container(containers: list[Object], name: str) -> Object:
    """The container of that name, or the first one."""
    return next((container for container in containers if container.get("name") == name), containers[0])


def _complete_replica(replica: ReplicaSpec, role: Role, kind: Kind) -> ReplicaSpec:
    return ReplicaSpec(
        replicas=role.default_replicas if replica.replicas is None else replica.replicas,
        restart_policy=replica.restart_policy or kind.restart_policy_of(role),
        template=_with_port(replica.template or {}, role, kind),
    )


def _with_port(template: Object, role: Role, kind: Kind) -> Object:
    spec = template.get("spec") or {}
    containers = spec.get("containers") or []
    if not containers or not role.has_port:
        return template
    main = main_container(containers, kind.container_of(role))
    ports = main.get("ports") or []
    if any(port.get("name") == kind.port_name for port in ports):
        return template
    with_port = {**main, "ports": [*ports, {"name": kind.port_name, "containerPort": kind.port}]}
    replaced = [with_port if container is main else container for container in containers]
    return {**template, "spec": {**spec, "containers": replaced}}
