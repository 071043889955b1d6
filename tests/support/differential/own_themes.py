"""Themes of generated cases that only one kind has, by the name of the kind."""

from collections.abc import Mapping

from tests.support.differential.case_builder import CaseBuilder, Themes
from tests.support.differential.cases import Change, Exit, Start
from trainwright.objects import Object

# PyTorchJob


def _elastic(case: CaseBuilder) -> None:
    case.workers(case.dice.randint(2, 3))
    policy: Object = {"minReplicas": 1, "maxReplicas": 4}
    policy |= case.dice.choice(
        [
            {},
            {"rdzvBackend": "etcd", "rdzvHost": "etcd.example", "rdzvPort": 2379},
            {
                "maxRestarts": 7,
                "rdzvId": "digits",
                "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
            },
            {"standalone": True},
        ]
    )
    case.spec["elasticPolicy"] = policy
    case.then(Start())
    case.then(Exit(f"worker-{case.dice.randrange(2)}"))


def _autoscaled(case: CaseBuilder) -> None:
    case.workers(2)
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    case.spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    case.then(Start())
    case.then(Change({"elasticPolicy": {"maxReplicas": 5}}))
    case.then(Change({"runPolicy": {"suspend": True}}))
    case.then(Change({"runPolicy": {"suspend": False}}))
    case.then(Start())
    case.succeed()


def _elastic_with_master(case: CaseBuilder) -> None:
    case.leader()
    case.workers(2)
    case.spec["elasticPolicy"] = case.dice.choice([{}, {"minReplicas": 1}, {"maxReplicas": 3}])
    case.then(Start())
    case.succeed()


def _own_init_container(case: CaseBuilder) -> None:
    case.leader()
    case.workers(1)
    case.template_of("Worker")["spec"]["initContainers"] = [{"name": "init-pytorch", "image": "example/fetch:1"}]
    case.then(Start())


def _deprecated_elastic(case: CaseBuilder) -> None:
    case.workers(2)
    case.spec.pop("nprocPerNode", None)
    case.spec["elasticPolicy"] = {"maxReplicas": 2, "nProcPerNode": 2}
    case.then(Start())
    case.succeed()


def _empty_rendezvous(case: CaseBuilder) -> None:
    case.workers(2)
    case.spec["elasticPolicy"] = {"maxReplicas": 2, "rdzvConf": []}
    case.then(Start())


# TFJob


def _worker_0_decides(case: CaseBuilder) -> None:
    _workers_with_servers(case)
    case.then(Start())
    case.then(Exit("worker-1"))
    case.then(Exit("worker-0"))


def _all_workers_decide(case: CaseBuilder) -> None:
    _workers_with_servers(case)
    case.spec["successPolicy"] = "AllWorkers"
    case.then(Start())
    case.then(Exit("worker-0"))
    case.then(Exit("worker-1"))


def _default_success_policy(case: CaseBuilder) -> None:
    case.workers(3)
    case.spec["successPolicy"] = ""
    case.then(Start())
    case.then(Exit("worker-0"))


def _chief_decides(case: CaseBuilder) -> None:
    case.leader()
    _workers_with_servers(case)
    case.spec["successPolicy"] = case.dice.choice(["", "AllWorkers"])
    case.then(Start())
    case.then(Exit("worker-0"))
    case.then(Exit("worker-1"))
    case.then(Exit(case.decider))


def _two_chiefs(case: CaseBuilder) -> None:
    case.replicas("Chief", 2, policy="Never")
    case.workers(1)
    case.then(Start())
    case.then(Exit("chief-0"))
    case.then(Exit("chief-1"))


def _server_failed(case: CaseBuilder) -> None:
    case.workers(1)
    case.replicas("PS", 2, policy="Never")
    case.then(Start())
    case.then(Exit("ps-1", 1))


def _server_replaced(case: CaseBuilder) -> None:
    case.workers(2)
    case.replicas("PS", 1, policy=case.dice.choice(["OnFailure", "Always", "ExitCode"]))
    case.then(Start())
    case.then(Exit("ps-0", 137))
    case.then(Start())
    case.then(Exit("worker-0"))


def _evaluator_failed(case: CaseBuilder) -> None:
    """Beside a dynamic worker that has failed before: the job fails because of the evaluator."""
    case.leader()
    case.workers(2, policy="Never")
    case.replicas("Evaluator", 1, policy="Never")
    case.spec["enableDynamicWorker"] = True
    case.then(Start())
    case.then(Exit("worker-1", 1))
    case.then(Exit("evaluator-0", 1))


def _evaluator_ends_first(case: CaseBuilder) -> None:
    case.leader()
    case.workers(1)
    case.replicas("Evaluator", 1)
    case.then(Start())
    case.then(Exit("evaluator-0"))
    case.then(Exit(case.decider))


def _dynamic_workers(case: CaseBuilder) -> None:
    case.workers(2, policy="Never")
    case.replicas("PS", case.dice.randint(1, 2))
    case.spec["enableDynamicWorker"] = True
    case.then(Start())
    case.then(Exit("worker-1", 1))
    case.then(Change(case.change("Worker", {"replicas": 3})))
    case.then(Start())
    case.then(Exit("worker-0"))


def _dynamic_workers_ended(case: CaseBuilder) -> None:
    """Worker 0 had to succeed, and no worker is left."""
    case.workers(2, policy="Never")
    case.replicas("PS", 1)
    case.spec["enableDynamicWorker"] = True
    case.then(Start())
    case.then(Exit("worker-0", 1))
    case.then(Exit("worker-1"))


def _dynamic_worker_replaced(case: CaseBuilder) -> None:
    case.leader()
    case.workers(2, policy=case.dice.choice(["OnFailure", "ExitCode"]))
    case.spec["enableDynamicWorker"] = True
    case.then(Start())
    case.then(Exit("worker-1", 143))
    case.then(Start())
    case.then(Exit(case.decider))


def _single_replica(case: CaseBuilder) -> None:
    case.replicas(case.dice.choice(["Worker", "Chief", "Master"]), 1)
    case.then(Start())
    case.succeed()


def _nobody_decides(case: CaseBuilder) -> None:
    case.replicas(case.dice.choice(["PS", "Evaluator"]), 2)
    case.then(Start())
    case.succeed()


def _failed_while_restarting(case: CaseBuilder) -> None:
    """A worker fails for good while the chief's new pod has not started."""
    case.leader(policy="OnFailure")
    case.workers(2, policy="Never")
    case.then(Start())
    case.then(Exit(case.decider, 1))
    case.then(Exit("worker-0", 1))
    case.then(Start())


def _servers_in_another_letter_case(case: CaseBuilder) -> None:
    case.workers(1)
    case.replicas("PS", 1)
    case.then(Start())
    case.succeed()
    case.roles["Ps"] = case.roles.pop("PS")


def _own_port_of_each_role(case: CaseBuilder) -> None:
    for role, number in (("Chief", 1111), ("Worker", 2222), ("PS", 3333)):
        case.replicas(role, 2 if role == "PS" else 1, ports=[{"name": "tfjob-port", "containerPort": number}])
    case.then(Start())
    case.succeed()


def _unknown_role(case: CaseBuilder) -> None:
    case.workers(1)
    case.replicas("Banana", 1)
    case.then(Start())


def _workers_with_servers(case: CaseBuilder) -> None:
    case.workers(2)
    if case.dice.random() < 0.7:
        case.replicas("PS", 1)


# XGBoostJob


def _master_alone(case: CaseBuilder) -> None:
    case.leader()
    case.then(Start())
    case.succeed()


def _no_master(case: CaseBuilder) -> None:
    case.replicas("Worker", 2)


def _worker_restarted_by_its_policy(case: CaseBuilder) -> None:
    case.leader(policy="Never")
    case.workers(2, policy=case.dice.choice(["OnFailure", "Always"]))
    case.then(Start())
    case.then(Exit("worker-1", 1))
    case.then(Start())
    case.then(Exit("master-0"))


def _master_restarted_by_its_exit_code(case: CaseBuilder) -> None:
    case.leader(policy="ExitCode")
    case.workers(1, policy="ExitCode")
    case.then(Start())
    case.then(Exit("master-0", 137))
    case.then(Start())
    case.succeed()


def _own_port_of_the_workers(case: CaseBuilder) -> None:
    case.leader(ports=[{"name": "xgboostjob-port", "containerPort": 1111}])
    case.workers(2, ports=[{"name": "xgboostjob-port", "containerPort": 2222}])
    case.then(Start())
    case.succeed()


# PaddleJob


def _several_masters(case: CaseBuilder) -> None:
    case.replicas("Master", 2)
    case.workers(2)
    case.then(Start())
    case.then(Exit("worker-0"))
    case.then(Exit("master-0"))
    case.then(Exit("master-1"))


def _masters_alone(case: CaseBuilder) -> None:
    case.replicas("Master", case.dice.randint(1, 2))
    case.then(Start())
    case.succeed()


def _paddle_elastic(case: CaseBuilder) -> None:
    """Always with workers and bounds: the Go operator's process ends without them."""
    if case.dice.random() < 0.5:
        case.leader()
    case.workers(2)
    case.spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3, "maxRestarts": 2}
    case.then(Start())
    case.then(Change(case.change("Worker", {"replicas": 3})))
    case.then(Start())
    case.succeed()


# JAXJob


def _coordinator_replaced(case: CaseBuilder) -> None:
    case.workers(3, policy=case.dice.choice(["OnFailure", "ExitCode"]))
    case.then(Start())
    case.then(Exit("worker-0", 137))
    case.then(Start())
    case.succeed()


def _single_process(case: CaseBuilder) -> None:
    case.workers(1)
    case.then(Start())
    case.succeed()


def _scaled_up_and_failed(case: CaseBuilder) -> None:
    case.workers(1, policy="Never")
    case.then(Start())
    case.then(Change(case.change("Worker", {"replicas": 3})))
    case.then(Start())
    case.then(Exit("worker-2", 1))


# MPIJob


def _launched(case: CaseBuilder) -> None:
    case.spec["slotsPerWorker"] = case.dice.randint(1, 8)
    case.leader()
    case.workers()
    case.then(Start())
    case.then(Exit("launcher"))


def _main_container(case: CaseBuilder) -> None:
    case.leader()
    case.workers()
    case.spec["mainContainer"] = "main"
    case.spec["cleanPodPolicy"] = case.dice.choice(["All", "Running", "None"])
    case.then(Start())
    case.then(Exit("launcher"))


def _gpu_launcher(case: CaseBuilder) -> None:
    name = case.dice.choice(["nvidia.com/gpu", "example.com/gpu-shares", "example.com/tpu"])
    case.leader(resources={"limits": {name: "1"}})
    case.workers(2)
    case.then(Start())
    case.then(Exit("launcher", 1))


def _intel(case: CaseBuilder) -> None:
    own = [{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "ssh"}, {"name": "I_MPI_HYDRA_BOOTSTRAP_EXEC", "value": "/ssh"}]
    case.leader(env=case.dice.sample(own, case.dice.randint(0, 2)))
    case.workers(1)
    case.then(Start())


def _own_service_account(case: CaseBuilder) -> None:
    case.leader()
    case.template_of("Launcher")["spec"]["serviceAccountName"] = f"{case.name}-robot"
    case.workers(1)
    case.then(Start())
    case.then(Exit("launcher"))


def _sleeping_workers(case: CaseBuilder) -> None:
    case.leader()
    case.workers(2, command=[], args=["--lost"])
    case.then(Start())
    case.then(Exit("worker-1", 1))


def _launcher_alone(case: CaseBuilder) -> None:
    case.leader()
    case.then(Start())
    case.then(Exit("launcher"))


def _rescaled(case: CaseBuilder) -> None:
    """The files of mpirun follow the number of workers."""
    case.leader(policy="Never")
    case.workers(2, policy="Never")
    case.then(Start())
    case.then(Change(case.change("Worker", {"replicas": 12})))
    case.then(Start())
    case.then(Change(case.change("Worker", {"replicas": 1})))
    case.then(Exit("launcher"))


OWN_THEMES: Mapping[str, Themes] = {
    "MPIJob": {
        "launched": _launched,
        "main container": _main_container,
        "launcher with GPUs": _gpu_launcher,
        "Intel MPI": _intel,
        "own service account": _own_service_account,
        "sleeping workers": _sleeping_workers,
        "launcher alone": _launcher_alone,
        "rescaled": _rescaled,
    },
    "PyTorchJob": {
        "elastic": _elastic,
        "autoscaled": _autoscaled,
        "elastic with master": _elastic_with_master,
        "own init container of the same name": _own_init_container,
        "elastic with the deprecated number of processes": _deprecated_elastic,
        "empty rendezvous configuration": _empty_rendezvous,
    },
    "TFJob": {
        "worker 0 decides": _worker_0_decides,
        "all workers decide": _all_workers_decide,
        "dynamic workers": _dynamic_workers,
        "chief decides": _chief_decides,
        "failed while restarting": _failed_while_restarting,
        "server failed": _server_failed,
        "default success policy": _default_success_policy,
        "two chiefs": _two_chiefs,
        "server replaced": _server_replaced,
        "evaluator failed": _evaluator_failed,
        "evaluator ends first": _evaluator_ends_first,
        "dynamic worker replaced": _dynamic_worker_replaced,
        "dynamic workers ended": _dynamic_workers_ended,
        "single replica": _single_replica,
        "nobody decides": _nobody_decides,
        "servers in another letter case": _servers_in_another_letter_case,
        "own port of each role": _own_port_of_each_role,
        "unknown role": _unknown_role,
    },
    "XGBoostJob": {
        "master alone": _master_alone,
        "worker restarted by its policy": _worker_restarted_by_its_policy,
        "master restarted by its exit code": _master_restarted_by_its_exit_code,
        "own port of the workers": _own_port_of_the_workers,
        "no master": _no_master,
    },
    "PaddleJob": {
        "several masters": _several_masters,
        "masters alone": _masters_alone,
        "elastic": _paddle_elastic,
    },
    "JAXJob": {
        "coordinator replaced": _coordinator_replaced,
        "single process": _single_process,
        "scaled up and failed": _scaled_up_and_failed,
    },
}
