"""Themes of generated cases: how jobs run and finish."""

from tests.support.differential.case_builder import CaseBuilder, Themes
from tests.support.differential.cases import Change, Delete, Evict, Exit, Restarted, Start


def _success(case: CaseBuilder) -> None:
    case.leader()
    if not case.roles or case.dice.random() < 0.7:
        case.workers()
    case.then(Start())
    case.succeed()


def _workers_alone(case: CaseBuilder) -> None:
    case.workers()
    case.then(Start())
    case.succeed()


def _never_seen_running(case: CaseBuilder) -> None:
    case.any_shape()
    case.succeed()


def _replaced(case: CaseBuilder) -> None:
    failing = case.any_shape(policy=case.dice.choice(["OnFailure", "Always"]))
    case.run_policy(backoffLimit=6)
    case.then(Start())
    case.then(Exit(failing, case.dice.choice([1, 2, 127, 137])))
    case.then(Start())
    case.succeed()


def _retryable(case: CaseBuilder) -> None:
    failing = case.any_shape(policy="ExitCode")
    case.then(Start())
    case.then(Exit(failing, case.dice.choice([128, 130, 137, 143, 255])))
    case.then(Start())
    case.succeed()


def _permanent(case: CaseBuilder) -> None:
    failing = case.any_shape(policy="ExitCode")
    case.then(Start())
    case.then(Exit(failing, case.dice.choice([1, 2, 127])))


def _never(case: CaseBuilder) -> None:
    failing = case.any_shape(policy="Never")
    case.then(Start())
    case.then(Exit(failing, case.dice.choice([1, 137])))


def _suspended(case: CaseBuilder) -> None:
    case.any_shape()
    case.then(Start())
    case.then(Change({"runPolicy": {"suspend": True}}))
    case.then(Change({"runPolicy": {"suspend": False}}))
    case.then(Start())
    case.succeed()


def _restarted_in_place(case: CaseBuilder) -> None:
    pod = case.any_shape(policy="OnFailure")
    limit = case.dice.randint(1, 4)
    case.run_policy(backoffLimit=limit)
    case.then(Start())
    if limit > 1:
        case.then(Restarted(pod, limit - 1))
    case.then(Restarted(pod, limit))


def _evicted(case: CaseBuilder) -> None:
    pod = case.any_shape(policy=case.dice.choice(["OnFailure", "ExitCode"]))
    case.then(Start())
    case.then(Evict(pod))
    case.then(Start())
    case.succeed()


def _scaled(case: CaseBuilder) -> None:
    if case.dice.random() < 0.4:
        case.leader()
    case.workers(2)
    case.then(Start())
    case.then(Change(case.change("Worker", {"replicas": 4})))
    case.then(Start())
    case.then(Change(case.change("Worker", {"replicas": 1})))
    case.then(Exit(case.decider))
    case.then(Exit("worker-0"))


def _named_ports(case: CaseBuilder) -> None:
    ports = [{"name": "metrics", "containerPort": 9000}, {"name": "debug", "containerPort": 5678, "protocol": "UDP"}]
    case.leader(ports=ports)
    case.workers(ports=ports)
    case.then(Start())
    case.succeed()


def _created_suspended(case: CaseBuilder) -> None:
    case.any_shape()
    case.run_policy(suspend=True)
    case.then(Change({"runPolicy": {"suspend": False}}))
    case.then(Start())
    case.succeed()


def _deleted_by_hand(case: CaseBuilder) -> None:
    """Without a grace period; terminating pods are a theme of their own."""
    pod = case.any_shape(policy="OnFailure")
    case.then(Start())
    case.then(Delete(pod))
    case.then(Start())
    case.succeed()


def _zero_ttl(case: CaseBuilder) -> None:
    """A time to live of zero: the job is deleted when it has finished."""
    case.any_shape(policy="Never")
    case.run_policy(ttlSecondsAfterFinished=0)
    case.then(Start())
    case.succeed()


def _zero_backoff_limit(case: CaseBuilder) -> None:
    failing = case.any_shape(policy=case.dice.choice(["OnFailure", "ExitCode"]))
    case.run_policy(backoffLimit=0)
    case.then(Start())
    case.then(Exit(failing, 137))


def _past_backoff_limit(case: CaseBuilder) -> None:
    failing = case.any_shape(policy="OnFailure")
    case.run_policy(backoffLimit=2)
    case.then(Start())
    for _ in range(2):
        case.then(Exit(failing, 1))
        case.then(Start())


def _past_deadline(case: CaseBuilder) -> None:
    case.any_shape(policy="Never")
    case.run_policy(activeDeadlineSeconds=4)
    case.then(Start())
    case.then(Exit("worker-0"))


def _limits_not_reached(case: CaseBuilder) -> None:
    case.any_shape()
    case.run_policy(activeDeadlineSeconds=3600, backoffLimit=3)
    case.then(Start())
    case.succeed()


def _failed_twice(case: CaseBuilder) -> None:
    """Two roles, two policies, no limit."""
    case.leader(policy="OnFailure")
    case.workers(2, policy="ExitCode")
    case.then(Start())
    for failing in (Exit(case.decider, 1), Exit("worker-1", 143)):
        case.then(failing)
        case.then(Start())
    case.succeed()


LIFECYCLES: Themes = {
    "success": _success,
    "workers alone": _workers_alone,
    "replaced after a failure": _replaced,
    "never seen running": _never_seen_running,
    "retryable exit code": _retryable,
    "permanent exit code": _permanent,
    "never restarted": _never,
    "suspended and resumed": _suspended,
    "restarted in place": _restarted_in_place,
    "evicted": _evicted,
    "scaled": _scaled,
    "named ports": _named_ports,
    "created suspended": _created_suspended,
    "deleted by hand": _deleted_by_hand,
    "zero time to live": _zero_ttl,
    "zero backoff limit": _zero_backoff_limit,
    "past its backoff limit": _past_backoff_limit,
    "past its deadline": _past_deadline,
    "limits not reached": _limits_not_reached,
    "failed twice": _failed_twice,
}
