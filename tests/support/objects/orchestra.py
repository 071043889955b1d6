"""A fictitious kind that uses everything a framework can declare: its row, its module. All else is common code.

A conductor without index and Service reads a score (a ConfigMap) that lists the violins which play. Each violin has a
port of its own. The audience never completes. The job has succeeded when the first violin has.
"""

from collections.abc import Callable, Iterable, Mapping

from trainwright.api.job import Job
from trainwright.api.kinds import Kind, Role
from trainwright.engine.addressing import Addresses, declared_port
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import (
    CONFIG_MAP,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    ExtraObject,
    ExtraResource,
    Framework,
    PodShape,
    RoleState,
)
from trainwright.engine.settings import Settings
from trainwright.engine.texts import Text, Texts

# The row

ORCHESTRA = Kind(
    name="OrchestraJob",
    plural="orchestrajobs",
    framework="orchestra",
    replicas_field="orchestraReplicaSpecs",
    roles=(
        Role("Conductor", exactly=1, indexed=False, has_service=False, has_port=False, container="conductor"),
        Role("Violin"),
        Role("Audience", default_restart_policy="OnFailure", has_service=False, has_port=False, completes=False),
    ),
    container="orchestra",
    port_name="strings",
    port=4711,
    default_restart_policy="Never",
)

# The module

TEXTS = Texts(
    running=Text("Playing", "{kind} {namespace}/{name} plays."),
    succeeded=Text("Applauded", "{kind} {namespace}/{name} was applauded."),
    role_failed=Text("OutOfTune", "{kind} {name} is out of tune: {failed} {role} failed."),
)


class Orchestra(Framework):
    extra_resources: tuple[ExtraResource, ...] = (CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)

    def texts(self, job: Job) -> Texts:
        return TEXTS

    def extra_objects(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[ExtraObject]:
        name = f"{job.name}-conductor"
        field = "spec.orchestraReplicaSpecs[Conductor]"
        playing = "".join(f"{job.child_name('Violin', index)}\n" for index in sorted(states["Violin"].active))
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        account = {"kind": "ServiceAccount", "name": name, "namespace": job.namespace}
        yield ExtraObject(
            of=CONFIG_MAP,
            name=f"{job.name}-score",
            content={"data": {"playing": playing}},
            job_field=field,
            labels={"app": job.name},
        )
        yield ExtraObject(of=SERVICE_ACCOUNT, name=name, content={}, job_field=field)
        yield ExtraObject(of=ROLE, name=name, content={"rules": rules}, job_field=field)
        yield ExtraObject(of=ROLE_BINDING, name=name, content={"roleRef": role, "subjects": [account]}, job_field=field)

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        declared = declared_port(job, "Violin")
        listeners = [Rank("Violin", index) for index in range(job.replicas["Violin"].count)]
        violins = [f"{addresses.host(rank)}:{addresses.port(rank, declared)}" for rank in listeners]
        conductor = PodShape(
            main_env=[{"name": "VIOLINS", "value": ",".join(violins)}],
            main_command=["sleep", "60"],
            main_mounts=[{"name": "score", "mountPath": "/etc/score"}],
            volumes=[{"name": "score", "configMap": {"name": f"{job.name}-score"}}],
            init_containers=[{"name": "tune", "image": "trainwright/host", "command": ["true"]}],
            service_account=f"{job.name}-conductor",
        )

        def shape(rank: Rank) -> PodShape:
            if rank.role == "Conductor":
                return conductor
            env = [{"name": "SEAT", "value": str(rank.index)}]
            if rank in listeners:
                env.append({"name": "STRINGS", "value": str(addresses.port(rank, declared))})
            return PodShape(env=env)

        return shape

    def is_running(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        return bool(states["Conductor"].active and states["Violin"].ready)

    def has_succeeded(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        return 0 in states["Violin"].completed

    def failing_roles(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[str]:
        order = [role.name for role in reversed(job.kind.roles) if role.completes]
        return [role for role in order if states[role].failed]
