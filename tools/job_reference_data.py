"""What tools/job_reference.py cannot derive from code: meanings of variables, and broken variants of the examples."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainwright.objects import Object

MEANINGS = {
    "COORDINATOR_ADDRESS": "Service of worker 0",
    "COORDINATOR_PORT": "port of worker 0",
    "MASTER_ADDR": "Service of the master",
    "MASTER_PORT": "port of the master",
    "I_MPI_HYDRA_BOOTSTRAP": "how Intel MPI starts processes; yours takes precedence",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC": "the program by which it does; yours takes precedence",
    "NUM_PROCESSES": "number of pods",
    "NVIDIA_DRIVER_CAPABILITIES": "empty, unless the launcher has GPUs",
    "NVIDIA_VISIBLE_DEVICES": "empty, unless the launcher has GPUs",
    "OMPI_MCA_orte_default_hostfile": "the workers, for Open MPI 4",
    "OMPI_MCA_plm_rsh_agent": "the program that starts processes in workers, for Open MPI 4; horovodrun looks for it",
    "PADDLE_JOB_ID": "name of the job",
    "PADDLE_MASTER": "where the pods meet: the first pod of the first role",
    "PADDLE_NNODES": "number of pods",
    "PADDLE_SERVER_NUM": "parameter servers in this pod",
    "PADDLE_TRAINER_NUM": "trainers in this pod",
    "PET_MASTER_ADDR": "`MASTER_ADDR` for torchrun",
    "PET_MASTER_PORT": "`MASTER_PORT` for torchrun",
    "PET_MAX_RESTARTS": "`elasticPolicy.maxRestarts`",
    "PET_NNODES": "number of pods, for torchrun; `MIN:MAX` of an elastic job",
    "PET_NODE_RANK": "rank of the pod, for torchrun",
    "PET_NPROC_PER_NODE": "`nprocPerNode`",
    "PET_RDZV_BACKEND": "`elasticPolicy.rdzvBackend`",
    "PET_RDZV_CONF": "`elasticPolicy.rdzvConf`",
    "PET_RDZV_ENDPOINT": "where torchrun's agents meet",
    "PET_RDZV_ID": "`elasticPolicy.rdzvId`",
    "PET_STANDALONE": "`elasticPolicy.standalone`; the value is empty",
    "PRTE_MCA_plm_ssh_agent": "the same for Open MPI 5; yours takes precedence",
    "PRTE_MCA_prte_default_hostfile": "the workers, for Open MPI 5; yours takes precedence",
    "POD_IP_DUMMY": "address of the pod, for `PADDLE_MASTER`",
    "PROCESS_ID": "index of the pod",
    "PYTHONUNBUFFERED": "Python writes its output at once",
    "RANK": "rank of the pod",
    "TF_CONFIG": "addresses of the pods, and the pod's own task",
    "WORKER_ADDRS": "Services of all workers, for LightGBM",
    "WORKER_PORT": "port of the workers, for LightGBM",
    "WORLD_SIZE": "number of pods",
    "PyTorchJob WORLD_SIZE": "number of pods, times `nprocPerNode` if that is a number",
}
"""What the environment variables are for, with the kind in front where it differs; every variable needs an entry."""

VARIANTS: dict[str, Callable[[Object], None]] = {
    "elastic": lambda spec: spec.update(
        pytorchReplicaSpecs={"Worker": spec["pytorchReplicaSpecs"]["Worker"]},
        elasticPolicy={
            "minReplicas": 1,
            "maxReplicas": 4,
            "maxRestarts": 3,
            "rdzvId": "reference",
            "rdzvConf": [{"key": "timeout", "value": "60"}],
            "standalone": True,
        },
    ),
    "dynamic": lambda spec: spec.update(enableDynamicWorker=True),
    "servers": lambda spec: spec["paddleReplicaSpecs"].update(
        Master={**copy.deepcopy(spec["paddleReplicaSpecs"]["Worker"]), "replicas": 1}
    ),
}
"""Changes of a page's example by which further variables appear."""


@dataclass(frozen=True)
class Case:
    """A broken variant of an example. `changes` has values by path; `before` those of the job before an update."""

    rule: str
    changes: Mapping[str, Any]
    before: Mapping[str, Any] = field(default_factory=dict)


ABSENT = object()
P = "spec.pytorchReplicaSpecs"


def role_with(container: str) -> Object:
    return {"template": {"spec": {"containers": [{"name": container, "image": "x"}]}}}


CASES: dict[str, list[Case]] = {
    "jobs": [
        Case("no unknown fields outside the `spec` of templates", {"spec.runPolicy.backofLimit": 3}),
        Case("values have the declared type", {"spec.runPolicy.backoffLimit": "three"}),
        Case("the name is a DNS label", {"metadata.name": "0-a"}),
        Case("names of pods and Services have at most 63 characters", {"metadata.name": "a" * 60}),
        Case("at least one role", {P: {}}),
        Case("known roles", {f"{P}.Chief": role_with("pytorch")}),
        Case("each role once, in any letter case", {f"{P}.worker": {"template": {}}}),
        Case("0 to 100000 replicas", {f"{P}.Worker.replicas": 100_001}),
        Case("each role has a template, so `kubectl scale` cannot add one", {f"{P}.Worker.template": ABSENT}),
        Case("templates have containers", {f"{P}.Worker.template.spec.containers": []}),
        Case("each container has an image", {f"{P}.Worker.template.spec.containers.0.image": ABSENT}),
        Case("one container has the name of the kind", {f"{P}.Worker.template.spec.containers.0.name": "main"}),
        Case("known restart policy", {f"{P}.Worker.restartPolicy": "Sometimes"}),
        Case("known clean-pod policy", {"spec.runPolicy.cleanPodPolicy": "none"}),
        Case("known manager", {"spec.runPolicy.managedBy": "x"}),
        Case(
            "the manager is immutable",
            {"spec.runPolicy.managedBy": "kueue.x-k8s.io/multikueue"},
            {"spec.runPolicy.managedBy": "kubeflow.org/training-operator"},
        ),
        Case(
            "the queue is immutable",
            {"spec.runPolicy.schedulingPolicy": {"queue": "b"}},
            {"spec.runPolicy.schedulingPolicy": {"queue": "a"}},
        ),
        Case("gang resources are quantities", {"spec.runPolicy.schedulingPolicy": {"minResources": {"cpu": "lots"}}}),
        Case("no negative numbers in the gang's settings", {"spec.runPolicy.schedulingPolicy": {"minAvailable": -1}}),
    ],
    "PyTorchJob": [
        Case("exactly one Master", {f"{P}.Master.replicas": 2}),
        Case("at least one Worker; `kubectl scale` may set 0", {f"{P}.Worker.replicas": 0}),
        Case("elastic jobs have workers", {f"{P}.Worker": ABSENT, "spec.elasticPolicy": {}}),
        Case("valid elastic bounds", {"spec.elasticPolicy": {"minReplicas": 3, "maxReplicas": 2}}),
        Case("one field for the number of processes", {"spec.elasticPolicy": {"nProcPerNode": 2}}),
    ],
    "TFJob": [
        Case(
            "Chief or Master, not both",
            {
                "spec.tfReplicaSpecs.Chief": role_with("tensorflow"),
                "spec.tfReplicaSpecs.Master": role_with("tensorflow"),
            },
        ),
        Case("`TF_CONFIG` can name all pods", {"spec.tfReplicaSpecs.Worker.replicas": 5000}),
        Case("known success policy", {"spec.successPolicy": "Any"}),
    ],
    "XGBoostJob": [
        Case("a Master is present", {"spec.xgbReplicaSpecs.Master": ABSENT}),
        Case("exactly one Master", {"spec.xgbReplicaSpecs.Master.replicas": 2}),
        Case("`WORKER_ADDRS` can name all workers", {"spec.xgbReplicaSpecs.Worker.replicas": 9000}),
    ],
    "PaddleJob": [
        Case(
            "one container has the name of the kind",
            {"spec.paddleReplicaSpecs.Worker.template.spec.containers.0.name": "main"},
        ),
    ],
    "JAXJob": [
        Case("Worker is the only role", {"spec.jaxReplicaSpecs.Master": role_with("jax")}),
    ],
    "MPIJob": [
        Case("a Launcher is present", {"spec.mpiReplicaSpecs.Launcher": ABSENT}),
        Case("exactly one Launcher", {"spec.mpiReplicaSpecs.Launcher.replicas": 2}),
        Case("at least one slot", {"spec.slotsPerWorker": 0}),
        Case("the main container is one of the workers'", {"spec.mainContainer": "other"}),
    ],
}
WARNINGS: dict[str, list[Case]] = {
    "jobs": [
        Case("a role in another letter case", {f"{P}.Worker": ABSENT, f"{P}.worker": {"template": {}}}),
        Case(
            "a field of `runPolicy` directly under `spec`",
            {"spec.backoffLimit": 3, "spec.runPolicy.backoffLimit": ABSENT},
        ),
        Case("the same field in both places", {"spec.backoffLimit": 3, "spec.runPolicy.backoffLimit": 3}),
    ],
    "PyTorchJob": [
        Case(
            "the earlier field for processes", {"spec.elasticPolicy": {"nProcPerNode": 2}, "spec.nprocPerNode": ABSENT}
        )
    ],
    "TFJob": [Case("an unknown success policy, where upstream's CRD is installed", {"spec.successPolicy": "Any"})],
    "PaddleJob": [Case("any `elasticPolicy`", {"spec.elasticPolicy": {"minReplicas": 1}})],
    "MPIJob": [
        Case(
            "two different clean-pod policies", {"spec.cleanPodPolicy": "All", "spec.runPolicy.cleanPodPolicy": "None"}
        )
    ],
}
