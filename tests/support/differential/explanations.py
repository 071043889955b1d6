"""Why we may differ from the Go operator: each reason quotes a row of docs/compatibility.md and says what it covers.

A difference that no reason covers is a defect: of trainwright, or of that page.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.differential.cases import Case, Delete
from tests.support.differential.snapshots import Difference, Snapshot, differences

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"

_GO_RECORDER_BURST = 25
"""So many events of one job pass through Go's recorder; of the others it lets one pass every five minutes."""


@dataclass(frozen=True)
class Comparison:
    """What a reason may look at beside the difference itself: both sides of the case it was found in."""

    case: Case
    go: Snapshot
    ours: Snapshot

    def failed(self, side: Snapshot, why: str) -> bool:
        return any(kind == "Failed" and why in message for kind, _, message in side.conditions)

    def succeeded(self, side: Snapshot) -> bool:
        return "Succeeded" in side.states


@dataclass(frozen=True)
class Explanation:
    """`row` is the beginning of a row of the page, or of a heading. `chance`: Go does it in some runs only."""

    row: str
    matches: Callable[[Difference, Comparison], object]
    chance: bool = False


@dataclass(frozen=True)
class Divergence:
    """A row that changes the fate of a job: from then on its two lives are not comparable, its pods' contents are."""

    row: str
    since: Callable[[Comparison], object]
    chance: bool = False


def rows_of_the_page() -> list[str]:
    """The first cell of every row, and the headings."""
    lines = PAGE.read_text().splitlines()
    cells = [line.removeprefix("| ").partition(" | ")[0] for line in lines if line.startswith("| ")]
    return cells + [line.lstrip("# ") for line in lines if line.startswith("#")]


def is_about_outcome(difference: Difference) -> bool:
    """Whether it says that a child is there, where a pod stands or what the job shows; not what a child looks like."""
    kinds = ("job.status*", "events", "pods.*.phase", "pods.*.spec.nodeName", "pods.*.metadata.terminating")
    child = re.fullmatch(r"(pods|services|companions)\.[^.]+", difference.path)
    return bool(child) or any(fnmatchcase(difference.path, kind) for kind in kinds)


def _only_ours(difference: Difference, *fields: str) -> bool:
    return difference.go is None and difference.path in fields


def _getent_for_nslookup(difference: Difference, _: Comparison) -> bool:
    return (
        re.fullmatch(r"pods\.[^.]+\.spec\.initContainers\.\d+\.command\.\d+", difference.path) is not None
        and "nslookup" in difference.go
        and "getent" in difference.ours
    )


def _earlier_label(difference: Difference, _: Comparison) -> bool:
    words = "group-name|controller-name|(pytorch-)?(job-name|job-role|replica-type|replica-index)"
    return difference.go is None and bool(re.fullmatch(rf"pods\.[^.]+\.metadata\.labels\.({words})", difference.path))


def _ports_shuffled(difference: Difference, comparison: Comparison) -> bool:
    if not (found := re.match(r"services\.([^.]+)\.spec\.ports\.\d+\.", difference.path)):
        return False
    go, ours = (side.services[found[1]]["spec"]["ports"] for side in (comparison.go, comparison.ours))
    numbers = [sorted((port["name"], port["port"]) for port in ports) for ports in (go, ours)]
    return numbers[0] == numbers[1] and {port["protocol"] for port in go} == {"TCP"}


def _second_try(difference: Difference, _: Comparison) -> bool:
    return difference.path == "events" and bool(
        difference.go
        and difference.go[1] in ("FailedCreatePod", "FailedCreateService")
        and difference.go[2].endswith("already exists")
    )


def _restart_told(difference: Difference, comparison: Comparison) -> bool:
    """Go says that it restarts what was only deleted, or what it is about to give up."""
    name = comparison.case.name
    told = rf"PyTorchJob {name} is restarting because \d+ (Master|Worker) replica\(s\) failed\."
    return difference.path == "events" and bool(difference.go and re.fullmatch(told, difference.go[2]))


def _deleted_twice(job: str) -> tuple[str, str, str]:
    return ("Warning", "FailedDeletePod", f'Error deleting: pytorchjobs.kubeflow.org "{job}" not found')


def _work_done_twice(comparison: Comparison) -> bool:
    """Somebody has deleted a pod that had succeeded, and Go alone has a new one."""
    again = comparison.go.pods.keys() - comparison.ours.pods.keys()
    deleted = {action.pod for step in comparison.case.steps for action in step if isinstance(action, Delete)}
    return bool(again) and again <= deleted and bool(comparison.ours.status.get("completedIndexes"))


def _service_left(difference: Difference, comparison: Comparison) -> bool:
    """Of a finished job that is to be cleaned up, Go has kept or made again a service without a pod."""
    found = re.fullmatch(r"services\.([^.]+)", difference.path)
    cleaned = comparison.case.run_policy.get("cleanPodPolicy", "None") != "None"
    ended = bool(comparison.go.status.get("completionTime"))
    return found is not None and cleaned and ended and difference.ours is None and found[1] not in comparison.go.pods


def _deprecated(difference: Difference, field: str) -> bool:
    if difference.path != "events" or difference.ours is None:
        return False
    _, reason, message = difference.ours
    return reason == "DeprecatedField" and field in message


def _lost_by_the_recorder(difference: Difference, comparison: Comparison) -> bool:
    return difference.path == "events" and difference.go is None and comparison.go.told >= _GO_RECORDER_BURST


_OWN_FIELDS = ("job.status.ports", "job.status.restarts", "job.status.replacedPods", "job.status.completedIndexes")
_BACKOFF = "backoff limit"
_DEADLINE = "longer than specified deadline"

DIVERGENCES = (
    Divergence(
        "`activeDeadlineSeconds` is checked only when another event triggers a reconcile",
        lambda of: of.failed(of.ours, _DEADLINE) and not of.failed(of.go, _DEADLINE),
    ),
    Divergence(
        "`activeDeadlineSeconds: 0` starts all pods first",
        lambda of: of.case.run_policy.get("activeDeadlineSeconds") == 0 and not of.ours.pods,
    ),
    Divergence(
        "`backoffLimit` counts only container restarts of pods that exist now",
        lambda of: of.failed(of.ours, _BACKOFF) and not of.failed(of.go, _BACKOFF),
    ),
    Divergence(
        "`cleanPodPolicy`, `ttlSecondsAfterFinished`, `activeDeadlineSeconds` and `backoffLimit` directly under `spec`",
        lambda of: "cleanPodPolicy" in of.case.manifest["spec"],
    ),
    Divergence(
        "An unnamed container port makes the API server reject the service",
        lambda of: any("ports[0].name: Required value" in message for _, _, message in of.go.events),
    ),
    Divergence(
        "`elasticPolicy.rdzvConf: []` crashes the reconcile",
        lambda of: of.case.manifest["spec"].get("elasticPolicy", {}).get("rdzvConf") == [] and not of.go.pods,
    ),
    Divergence(
        "Names of pods and services may exceed 63 characters",
        lambda of: any("must be no more than 63 characters" in message for _, _, message in of.go.events),
    ),
    Divergence(
        "A user's init container with the name `init-pytorch` makes the pod invalid",
        lambda of: any('Duplicate value: "init-pytorch"' in message for _, _, message in of.go.events),
    ),
    Divergence(
        "Deleting a running pod by hand counts as a failure",
        lambda of: (
            of.case.does(Delete) and of.failed(of.go, "is failed because") and not of.ours.status.get("completionTime")
        ),
        chance=True,
    ),
    Divergence("A pod that has succeeded and is then deleted is started again", _work_done_twice),
    Divergence(
        "Removing a role from a live job leaves its pods, services and replica status",
        lambda of: of.ours.job and of.go.counted_roles - of.ours.job["spec"]["pytorchReplicaSpecs"].keys(),
    ),
)
"""Looked at first, in this order."""

EXPLANATIONS = (
    Explanation("Fields of our own", lambda found, _: _only_ours(found, *_OWN_FIELDS)),
    Explanation("Pods have only the labels of version 1.6 and later", _earlier_label),
    Explanation("The init container needs an `nslookup`", _getent_for_nslookup),
    Explanation(
        "The init container has no `securityContext`",
        lambda found, _: (
            found.go is None
            and re.fullmatch(r"pods\.[^.]+\.spec\.initContainers\.\d+\.securityContext", found.path)
            and found.ours.get("allowPrivilegeEscalation") is False
        ),
    ),
    Explanation("Ports of a service come in random order and lose their protocol", _ports_shuffled),
    Explanation(
        "The selector of the other role is lost if the master succeeds first",
        lambda found, of: (
            of.succeeded(of.go)
            and "Master" in of.case.manifest["spec"]["pytorchReplicaSpecs"]
            and _only_ours(found, "job.status.replicaStatuses.Worker.selector")
        ),
        chance=True,
    ),
    Explanation(
        "A permanent exit code under `ExitCode` leaves `completionTime` empty",
        lambda found, of: (
            of.failed(of.go, "is failing because")
            and (_only_ours(found, "job.status.completionTime") or _restart_told(found, of))
        ),
    ),
    Explanation(
        "Deleting a running pod by hand counts as a failure",
        lambda found, of: (
            of.case.does(Delete)
            and (
                _restart_told(found, of)
                or (re.fullmatch(r"job\.status\.conditions\.\d\.\d", found.path) and "Restarting" in of.go.states)
                or (re.fullmatch(r"job\.status\.replicaStatuses\.\w+\.failed", found.path) and found.ours is None)
            )
        ),
        chance=True,
    ),
    Explanation(
        "When a limit fails the job, the replica status of the previous reconcile stays",
        lambda found, of: (
            of.failed(of.go, _BACKOFF)
            and re.fullmatch(r"job\.status\.replicaStatuses\.\w+\.(active|failed)", found.path)
        ),
    ),
    Explanation(
        "When a limit fails the job, the exit code that led to it is not recorded",
        lambda found, of: (
            of.failed(of.go, _BACKOFF) and found.path == "events" and found.ours and found.ours[1] == "ExitedWithCode"
        ),
    ),
    Explanation(
        "The HorizontalPodAutoscaler of a finished job stays",
        lambda found, of: (
            found.path == "companions.HorizontalPodAutoscaler" and found.ours is None and of.succeeded(of.ours)
        ),
    ),
    Explanation(
        "A job whose TTL has expired may be deleted twice",
        lambda found, of: of.go.job is None and found.go == _deleted_twice(of.case.name),
        chance=True,
    ),
    Explanation(
        "`schedulingPolicy` without a gang scheduler is ignored silently",
        lambda found, _: found.path == "events" and found.ours and found.ours[1] == "FieldWithoutEffect",
    ),
    Explanation("Services whose pods no longer exist stay after the job has finished", _service_left, chance=True),
    Explanation(
        "A job that has just failed may get an event that it is restarting",
        lambda found, of: "Failed" in of.go.states and "Failed" in of.ours.states and _restart_told(found, of),
        chance=True,
    ),
    Explanation(
        "`elasticPolicy.nProcPerNode` causes an admission warning", lambda found, _: _deprecated(found, "nProcPerNode")
    ),
    Explanation(
        "Replica keys in another letter case", lambda found, _: _deprecated(found, "spec.pytorchReplicaSpecs[worker]")
    ),
    Explanation("A child that the cache does not show yet is created a second time", _second_try, chance=True),
    Explanation("Events of a job beyond the 25th are dropped", _lost_by_the_recorder, chance=True),
)

GANG_DIVERGENCES = (
    Divergence(
        "A job whose PodGroup is not in the cache yet waits for one more reconcile, or without end",
        lambda of: of.ours.pods and not of.go.pods and not of.go.status.get("startTime"),
        chance=True,
    ),
)

GANG_EXPLANATIONS = (
    Explanation(
        "`JobTerminated` and `SuccessfulDeletePodGroup` are recorded with every reconcile",
        lambda found, _: (
            found.path == "events" and found.go and found.go[1] in ("JobTerminated", "SuccessfulDeletePodGroup")
        ),
    ),
    Explanation(
        "A PodGroup may be deleted twice",
        lambda found, _: found.path == "events" and found.go and found.go[1] == "FailedDeletePodGroup",
        chance=True,
    ),
    Explanation(
        "While a PodGroup is pending, the job has no `replicaStatuses`",
        lambda found, of: _only_ours(found, "job.status.replicaStatuses") and not of.go.pods,
    ),
    Explanation(
        "While a PodGroup is pending, `status.lastReconcileTime` is written",
        lambda found, _: found.path == "job.status.lastReconcileTime" and found.ours is None,
    ),
    Explanation(
        "If a container has requests, its resources that have only a limit",
        lambda found, _: found.path == "companions.PodGroup.spec.minResources.nvidia.com/gpu" and found.go is None,
    ),
)
"""What operators show that were told of a gang scheduler."""


class Judge:
    """Sorts differences: each is explained by a row, which is counted, or held against us."""

    def __init__(self, fates: Sequence[Divergence], reasons: Sequence[Explanation]) -> None:
        self.seen: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self._fates = fates
        self._reasons = reasons
        self._parted: dict[str, Divergence] = {}
        self._cases: set[str] = set()
        self._looks = 0

    def look(self, step: int, comparison: Comparison) -> None:
        """Compares both sides of one case after one of its steps."""
        name = comparison.case.name
        self._cases.add(name)
        self._looks += 1
        if name not in self._parted and (fate := next((one for one in self._fates if one.since(comparison)), None)):
            self._parted[name] = fate
        for difference in differences(comparison.go, comparison.ours):
            row = self._row(difference, comparison)
            if row:
                self.seen[row] += 1
            else:
                self.unexplained.append(f"{name} ({comparison.case.theme}), step {step}: {difference}")

    @property
    def not_seen(self) -> list[str]:
        """Rows that the cases have not shown although Go would show them in every run."""
        reasons: list[Divergence | Explanation] = [*self._fates, *self._reasons]
        return [one.row for one in reasons if not one.chance and not self.seen[one.row]]

    @property
    def summary(self) -> str:
        return (
            f"{len(self._cases)} PyTorchJobs compared with training-operator v1.9.4 at {self._looks} moments of their "
            f"lives: {self.seen.total()} differences in {len(self.seen)} rows of docs/compatibility.md, "
            f"{len(self.unexplained)} in none"
        )

    def _row(self, difference: Difference, comparison: Comparison) -> str | None:
        for one in self._reasons:
            if one.matches(difference, comparison):
                return one.row
        parted = self._parted.get(comparison.case.name)
        return parted.row if parted and is_about_outcome(difference) else None
