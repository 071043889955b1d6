"""TensorFlow: TF_CONFIG, which names the addresses of all peers and the task of the pod."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from trainwright.api.job import Job
from trainwright.api.kinds.tensorflow import ALL_WORKERS, TensorFlowFields
from trainwright.engine.addressing import Addresses, declared_port
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import Framework, PodShape, RoleState, env_list
from trainwright.engine.settings import Settings
from trainwright.engine.texts import TEXTS_WITHOUT_MASTER, Text, Texts

_CHIEFS = ("Chief", "Master")
FIRST_WORKER = Rank("Worker", 0)

TEXTS = replace(
    TEXTS_WITHOUT_MASTER,
    role_restarting=TEXTS_WITHOUT_MASTER.pod_restarting,
    role_failed=Text("Failed", "{kind} {namespace}/{name} has failed because {failed} {role} replica(s) failed."),
)


class TensorFlow(Framework):
    def texts(self, job: Job) -> Texts:
        return TEXTS

    def is_master(self, job: Job, rank: Rank) -> bool:
        return rank.role in _CHIEFS or (rank == FIRST_WORKER and self.deciding_role(job) == "Worker")

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        if job.total_replicas == 1:
            return lambda _: PodShape()
        cluster = {role: _addresses(job, addresses, role) for role in job.replicas}
        config_of = _sparse_configs(cluster) if _is_dynamic(job) else _configs(cluster)
        return lambda rank: PodShape(main_env=env_list({"TF_CONFIG": config_of(rank)}))

    def has_succeeded(self, job: Job, states: Mapping[str, RoleState]) -> bool:
        """Without a chief, worker 0 decides, unless the success policy demands all workers."""
        policy = job.own_fields(TensorFlowFields).success_policy
        if self.deciding_role(job) == "Worker" and policy != ALL_WORKERS and 0 in states["Worker"].completed:
            return True
        return super().has_succeeded(job, states)

    def failing_roles(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[str]:
        """In upstream's order, which is the alphabetical one."""
        failing = sorted(super().failing_roles(job, states))
        return [role for role in failing if not (role == "Worker" and self._continues(job, states["Worker"]))]

    def _continues(self, job: Job, workers: RoleState) -> bool:
        """True if the job continues without dynamic workers that failed: as long as it has others, or a chief."""
        if not _is_dynamic(job) or job.replicas["Worker"].restart_policy != "Never":
            return False
        ended = len(workers.completed | workers.failed)
        return self.deciding_role(job) != "Worker" or ended < job.replicas["Worker"].count


def _is_dynamic(job: Job) -> bool:
    return bool(job.own_fields(TensorFlowFields).enable_dynamic_worker)


def _addresses(job: Job, addresses: Addresses, role: str) -> list[str]:
    declared = declared_port(job, role)
    ranks = [Rank(role, index) for index in range(job.replicas[role].count)]
    return [f"{addresses.qualified_host(rank)}:{addresses.port(rank, declared)}" for rank in ranks]


def _configs(cluster: Mapping[str, list[str]]) -> Callable[[Rank], str]:
    """The cluster is encoded once: it is long and the same for all pods."""
    encoded = _encoded({role.lower(): cluster[role] for role in sorted(cluster)})
    return lambda rank: f'{{"cluster":{encoded},"task":{_task(rank)},"environment":"cloud"}}'


def _sparse_configs(cluster: Mapping[str, list[str]]) -> Callable[[Rank], str]:
    """With dynamic workers a pod has only addresses that do not change: its own and, for workers, those of the
    parameter servers."""

    def config(rank: Rank) -> str:
        known: dict[str, object] = {"worker": {}, "ps": []}
        if rank.role == "PS":
            known["ps"] = [cluster["PS"][rank.index]]
        elif rank.role == "Worker":
            known = {"worker": {str(rank.index): cluster["Worker"][rank.index]}, "ps": cluster.get("PS")}
        return f'{{"cluster":{_encoded(known)},"task":{_task(rank)}}}'

    return config


def _task(rank: Rank) -> str:
    return _encoded({"type": rank.role.lower(), "index": rank.index})


def _encoded(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
