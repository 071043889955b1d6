"""A framework that nobody has heard of: one row and one small class. Whatever else a job needs is common code."""

from trainwright.api.job import Job
from trainwright.api.kinds import Kind, Role
from trainwright.engine.framework import Framework
from trainwright.engine.ranks import Rank
from trainwright.engine.rendering.addressing import Addresses, declared_port
from trainwright.objects import Object

# The row

ORCHESTRA = Kind(
    name="OrchestraJob",
    plural="orchestrajobs",
    framework="orchestra",
    replicas_field="orchestraReplicaSpecs",
    roles=(Role("Conductor", exactly=1), Role("Violin")),
    container="orchestra",
    port_name="baton",
    port=4711,
    default_restart_policy="Never",
)

# The module


class Orchestra(Framework):
    def environment(self, job: Job, rank: Rank, addresses: Addresses) -> list[Object]:
        host = addresses.host(Rank("Conductor", 0))
        port = addresses.port("Conductor", declared_port(job, "Conductor"))
        return [{"name": "BATON", "value": f"{host}:{port}"}, {"name": "SEAT", "value": str(rank.index)}]

    def listeners(self, job: Job) -> dict[str, int]:
        return {"Conductor": declared_port(job, "Conductor")}
