"""What a manifest leaves out, filled in on a copy. Nothing of it is ever written back to the cluster."""

from trainwright.api.kinds import Kind, Role
from trainwright.api.legacy import canonical_roles, run_policy
from trainwright.objects import Object


def with_defaults(spec: Object, kind: Kind) -> Object:
    """The spec as the engine wants it; shares every part that needs no change with the original."""
    replicas = canonical_roles(spec.get(kind.replicas_field) or {}, kind)
    completed = {
        name: _complete_replica(replica, role, kind) if (role := kind.role(name)) else replica
        for name, replica in replicas.items()
    }
    policy = complete_run_policy(run_policy(spec))
    return kind.complete({**spec, "runPolicy": policy, kind.replicas_field: completed})


def complete_run_policy(policy: Object) -> Object:
    return {"cleanPodPolicy": "None", **policy}


def default_container(containers: list[Object], kind: Kind) -> Object:
    """The container that trains: the one with the kind's name, else the first."""
    return next((container for container in containers if container.get("name") == kind.container), containers[0])


def _complete_replica(replica: Object, role: Role, kind: Kind) -> Object:
    completed = {**replica}
    if completed.get("replicas") is None:
        completed["replicas"] = role.default_replicas
    if not completed.get("restartPolicy"):
        completed["restartPolicy"] = kind.default_restart_policy
    completed["template"] = _with_port(replica.get("template") or {}, kind)
    return completed


def _with_port(template: Object, kind: Kind) -> Object:
    spec = template.get("spec") or {}
    containers = spec.get("containers") or []
    if not containers:
        return template
    trains = default_container(containers, kind)
    ports = trains.get("ports") or []
    if any(port.get("name") == kind.port_name for port in ports):
        return template
    with_port = {**trains, "ports": [*ports, {"name": kind.port_name, "containerPort": kind.port}]}
    replaced = [with_port if container is trains else container for container in containers]
    return {**template, "spec": {**spec, "containers": replaced}}
