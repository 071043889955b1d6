"""MPIJob: its row, its own fields and checks."""

from collections.abc import Iterable
from typing import Annotated

from trainwright.api.errors import invalid
from trainwright.api.kinds.kind import Kind, Role, Unvalidated
from trainwright.api.types import CLEAN_POD_POLICIES, Int32, text
from trainwright.objects.field_errors import FieldError, required
from trainwright.objects.metadata import View
from trainwright.objects.paths import value_at

KUBECTL_DELIVERY = "kubectl-delivery"
"""The init container of launchers, which waits for the workers."""
_REPLICAS = "spec.mpiReplicaSpecs"


class MPIFields(View, frozen=True):
    slots_per_worker: Annotated[
        Int32 | None, text("Number of processes that mpirun may start in each worker.", default="1", minimum=1)
    ] = None
    clean_pod_policy: Annotated[
        str | None,
        text(
            "Specifies which pods to delete after the job has finished: All, Running or None. "
            "spec.runPolicy.cleanPodPolicy takes precedence.",
            default="None",
            enum=list(CLEAN_POD_POLICIES),
        ),
    ] = None
    main_container: Annotated[
        str | None,
        text("Name of the container of each worker in which mpirun starts processes.", default="the first container"),
    ] = None


def _check(job: Unvalidated[MPIFields]) -> Iterable[FieldError]:
    if "Launcher" not in job.replicas:
        yield required(f"{_REPLICAS}[Launcher]", "must be present")
    slots = job.fields.slots_per_worker
    if slots is not None and slots < 1:
        yield invalid("spec.slotsPerWorker", slots, "must be greater than or equal to 1")
    yield from _check_main_container(job)


def _check_main_container(job: Unvalidated[MPIFields]) -> Iterable[FieldError]:
    """kubectl exec would fail in every worker."""
    name, worker = job.fields.main_container, job.replicas.get("Worker")
    if not name or worker is None:
        return
    containers = value_at(worker.template, "spec", "containers") or []
    names = [str(container.get("name")) for container in containers]
    if name not in names:
        yield invalid("spec.mainContainer", name, f"must be a container of Worker: {', '.join(names) or 'it has none'}")


MPI = Kind(
    name="MPIJob",
    plural="mpijobs",
    framework="mpi",
    replicas_field="mpiReplicaSpecs",
    roles=(
        Role("Launcher", exactly=1, number_optional=True, indexed=False, has_service=False, has_port=False),
        Role("Worker", default_replicas=0, has_service=False, has_port=False, completes=False),
    ),
    container="",
    port_name="",
    port=0,
    default_restart_policy="Never",
    earlier_name="mpi",
    earlier_roles=True,
    columns=("Age", "State"),
    fields=MPIFields,
    check=_check,
    deleted_as="Job",
)
