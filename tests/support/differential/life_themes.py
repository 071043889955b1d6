"""Themes of generated cases: how jobs live and end."""

from tests.support.differential.case_writer import CaseWriter, Themes
from tests.support.differential.played_cases import Change, Delete, Evict, Exit, Restarted, Start
from trainwright.objects import Object


def _success(write: CaseWriter) -> None:
    write.master()
    if write.chance.random() < 0.7:
        write.workers()
    write.play(Start())
    write.succeed()


def _workers_alone(write: CaseWriter) -> None:
    write.workers()
    write.play(Start())
    write.succeed()


def _replaced(write: CaseWriter) -> None:
    failing = write.either_shape(policy=write.chance.choice(["OnFailure", "Always"]))
    write.run_policy(backoffLimit=6)
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 2, 127, 137])))
    write.play(Start())
    write.succeed()


def _retryable(write: CaseWriter) -> None:
    failing = write.either_shape(policy="ExitCode")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([128, 130, 137, 143, 255])))
    write.play(Start())
    write.succeed()


def _permanent(write: CaseWriter) -> None:
    failing = write.either_shape(policy="ExitCode")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 2, 127])))


def _never(write: CaseWriter) -> None:
    failing = write.either_shape(policy="Never")
    write.play(Start())
    write.play(Exit(failing, write.chance.choice([1, 137])))


def _suspended(write: CaseWriter) -> None:
    write.either_shape()
    write.play(Start())
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _elastic(write: CaseWriter) -> None:
    write.workers(write.chance.randint(2, 3))
    policy: Object = {"minReplicas": 1, "maxReplicas": 4}
    policy |= write.chance.choice(
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
    write.spec["elasticPolicy"] = policy
    write.play(Start())
    write.play(Exit(f"worker-{write.chance.randrange(2)}"))


def _restarted_in_place(write: CaseWriter) -> None:
    pod = write.either_shape(policy="OnFailure")
    limit = write.chance.randint(1, 4)
    write.run_policy(backoffLimit=limit)
    write.play(Start())
    if limit > 1:
        write.play(Restarted(pod, limit - 1))
    write.play(Restarted(pod, limit))


def _evicted(write: CaseWriter) -> None:
    pod = write.either_shape(policy=write.chance.choice(["OnFailure", "ExitCode"]))
    write.play(Start())
    write.play(Evict(pod))
    write.play(Start())
    write.succeed()


def _scaled(write: CaseWriter) -> None:
    if write.chance.random() < 0.4:
        write.master()
    write.workers(2)
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}))
    write.play(Start())
    write.play(Change({"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}))
    if "Master" in write.spec["pytorchReplicaSpecs"]:
        write.play(Exit("master-0"))
    write.play(Exit("worker-0"))


def _named_ports(write: CaseWriter) -> None:
    ports = [{"name": "metrics", "containerPort": 9000}, {"name": "debug", "containerPort": 5678, "protocol": "UDP"}]
    write.master(ports=ports)
    write.workers(ports=ports)
    write.play(Start())
    write.succeed()


def _born_suspended(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(suspend=True)
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _deleted_by_hand(write: CaseWriter) -> None:
    """In one blow: with a grace period the terminating pod is seen, which is a theme of its own."""
    pod = write.either_shape(policy="OnFailure")
    write.play(Start())
    write.play(Delete(pod))
    write.play(Start())
    write.succeed()


def _autoscaled(write: CaseWriter) -> None:
    write.workers(2)
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    write.spec["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    write.play(Start())
    write.play(Change({"elasticPolicy": {"maxReplicas": 5}}))
    write.play(Change({"runPolicy": {"suspend": True}}))
    write.play(Change({"runPolicy": {"suspend": False}}))
    write.play(Start())
    write.succeed()


def _forgotten(write: CaseWriter) -> None:
    """A time to live of nothing: the job goes when it has ended."""
    write.either_shape(policy="Never")
    write.run_policy(ttlSecondsAfterFinished=0)
    write.play(Start())
    write.succeed()


def _no_second_chance(write: CaseWriter) -> None:
    failing = write.either_shape(policy=write.chance.choice(["OnFailure", "ExitCode"]))
    write.run_policy(backoffLimit=0)
    write.play(Start())
    write.play(Exit(failing, 137))


def _replaced_too_often(write: CaseWriter) -> None:
    failing = write.either_shape(policy="OnFailure")
    write.run_policy(backoffLimit=2)
    write.play(Start())
    for _ in range(2):
        write.play(Exit(failing, 1))
        write.play(Start())


def _late(write: CaseWriter) -> None:
    write.either_shape(policy="Never")
    write.run_policy(activeDeadlineSeconds=4)
    write.play(Start())
    write.play(Exit("worker-0"))


def _plenty_of_time(write: CaseWriter) -> None:
    write.either_shape()
    write.run_policy(activeDeadlineSeconds=3600, backoffLimit=3)
    write.play(Start())
    write.succeed()


def _elastic_with_master(write: CaseWriter) -> None:
    write.master()
    write.workers(2)
    write.spec["elasticPolicy"] = write.chance.choice([{}, {"minReplicas": 1}, {"maxReplicas": 3}])
    write.play(Start())
    write.succeed()


def _failed_twice(write: CaseWriter) -> None:
    """Two roles, two policies, no limit."""
    write.master(policy="OnFailure")
    write.workers(2, policy="ExitCode")
    write.play(Start())
    for failing in (Exit("master-0", 1), Exit("worker-1", 143)):
        write.play(failing)
        write.play(Start())
    write.succeed()


LIVES: Themes = {
    "success": _success,
    "workers alone": _workers_alone,
    "replaced after a failure": _replaced,
    "retryable exit code": _retryable,
    "permanent exit code": _permanent,
    "never restarted": _never,
    "suspended and resumed": _suspended,
    "elastic": _elastic,
    "restarted in place": _restarted_in_place,
    "evicted": _evicted,
    "scaled": _scaled,
    "named ports": _named_ports,
    "born suspended": _born_suspended,
    "deleted by hand": _deleted_by_hand,
    "autoscaled": _autoscaled,
    "forgotten at its end": _forgotten,
    "no second chance": _no_second_chance,
    "replaced too often": _replaced_too_often,
    "past its deadline": _late,
    "plenty of time": _plenty_of_time,
    "elastic with master": _elastic_with_master,
    "failed twice": _failed_twice,
}
