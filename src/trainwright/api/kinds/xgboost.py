"""XGBoostJob: its row and checks."""

from collections.abc import Iterable

from trainwright.api.kinds.kind import Kind, NoFields, Role, Unvalidated, check_env_string, length_of_list
from trainwright.objects.field_errors import FieldError, required

_REPLICAS = "spec.xgbReplicaSpecs"


def _check(job: Unvalidated[NoFields]) -> Iterable[FieldError]:
    if "Master" not in job.replicas:
        yield required(f"{_REPLICAS}[Master]", "must be present")
    workers = length_of_list(f"{job.metadata.name}-worker-0,", job.replicas.get("Worker"))
    yield from check_env_string(f"{_REPLICAS}[Worker].replicas", "WORKER_ADDRS", workers)


XGBOOST = Kind(
    name="XGBoostJob",
    plural="xgboostjobs",
    framework="xgboost",
    replicas_field="xgbReplicaSpecs",
    roles=(Role("Master", exactly=1), Role("Worker")),
    container="xgboost",
    port_name="xgboostjob-port",
    port=9999,
    default_restart_policy="Never",
    check=_check,
    deleted_as="Job",
)
