"""Explanations of differences from the Go operator: each quotes a row of docs/compatibility.md and says what it covers.

A difference without an explanation is a defect of trainwright or of that page.
"""

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.differential.cases import Case, Delete
from tests.support.differential.comparisons import Comparison, Divergence, Explanation
from tests.support.differential.mpi_explanations import MPI_DIVERGENCES, MPI_EXPLANATIONS, MPI_GANG_EXPLANATIONS
from tests.support.differential.snapshots import Difference, differences
from trainwright.api.job import is_managed_elsewhere

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"

_LONGEST_RUN_SECONDS = 900

_GO_RECORDER_BURST = 25
"""Go's recorder sends so many events of one job at once, and then one every five minutes."""


def rows_of_the_page() -> list[str]:
    """The first cell of every row, and the headings."""
    lines = PAGE.read_text().splitlines()
    cells = [line.removeprefix("| ").partition(" | ")[0] for line in lines if line.startswith("| ")]
    return cells + [line.lstrip("# ") for line in lines if line.startswith("#")]


def is_about_outcome(difference: Difference) -> bool:
    """True if it is about the existence of a child, a pod's phase, the job's status or its events."""
    kinds = ("job.status*", "events", "pods.*.phase", "pods.*.spec.nodeName", "pods.*.metadata.terminating")
    child = re.fullmatch(r"(pods|services|companions|extras)\.[^.]+", difference.path)
    return bool(child) or any(fnmatchcase(difference.path, kind) for kind in kinds)


def _only_ours(difference: Difference, *fields: str) -> bool:
    return difference.go is None and difference.path in fields


def _getent_for_nslookup(difference: Difference, _: Comparison) -> bool:
    return (
        re.fullmatch(r"pods\.[^.]+\.spec\.initContainers\.\d+\.command\.\d+", difference.path) is not None
        and "nslookup" in difference.go
        and "getent" in difference.ours
    )


def _earlier_label(difference: Difference, comparison: Comparison) -> bool:
    earlier = comparison.case.kind.earlier_name
    words = "(job-name|job-role|replica-type|replica-index)"
    keys = f"group-name|{words}" + (f"|controller-name|{earlier}-{words}" if earlier else "")
    return difference.go is None and bool(re.fullmatch(rf"pods\.[^.]+\.metadata\.labels\.({keys})", difference.path))


def _label_of_extra_object(difference: Difference, _: Comparison) -> bool:
    return difference.go is None and bool(re.fullmatch(r"companions\.[^.]+\.metadata\.labels", difference.path))


def _ports_shuffled(difference: Difference, comparison: Comparison) -> bool:
    if not (found := re.match(r"services\.([^.]+)\.spec\.ports\.\d+\.", difference.path)):
        return False
    go, ours = (side.services[found[1]]["spec"]["ports"] for side in (comparison.go, comparison.ours))
    numbers = [sorted((port["name"], port["port"]) for port in ports) for ports in (go, ours)]
    return numbers[0] == numbers[1] and {port["protocol"] for port in go} == {"TCP"}


def _created_twice(difference: Difference, _: Comparison) -> bool:
    return difference.path == "events" and bool(
        difference.go
        and difference.go[1] in ("FailedCreatePod", "FailedCreateService")
        and difference.go[2].endswith("already exists")
    )


def _restart_event(difference: Difference, comparison: Comparison) -> bool:
    """Go records a restart of a pod that was only deleted, or of a job that is about to fail."""
    case = comparison.case
    message = rf"{case.kind.name} {case.name} is restarting because \d+ \w+ replica\(s\) failed\."
    return difference.path == "events" and bool(difference.go and re.fullmatch(message, difference.go[2]))


def _deleted_twice(case: Case) -> tuple[str, str, str]:
    kind = case.kind
    message = f'Error deleting: {kind.resource.qualified_plural} "{case.name}" not found'
    return ("Warning", f"FailedDelete{kind.deleted_as}", message)


def _has_short_deadline(case: Case) -> bool:
    """True if the deadline may pass at any moment, even between the parts of a snapshot."""
    return case.run_policy.get("activeDeadlineSeconds") in range(1, _LONGEST_RUN_SECONDS)


def _has_no_replicas(case: Case) -> bool:
    return any(replica.get("replicas") == 0 for replica in case.roles.values())


def _has_failed_in_go_alone(comparison: Comparison) -> bool:
    return "Failed" in comparison.go.states and "Failed" not in comparison.ours.states


def _rerun_after_success(comparison: Comparison) -> bool:
    """A user has deleted a succeeded pod, and only Go has recreated it."""
    again = comparison.go.pods.keys() - comparison.ours.pods.keys()
    deleted = {action.pod for step in comparison.case.steps for action in step if isinstance(action, Delete)}
    return bool(again) and again <= deleted and bool(comparison.ours.status.get("completedIndexes"))


def _leftover_service(difference: Difference, comparison: Comparison) -> bool:
    """Go has kept or recreated a Service without a pod although the finished job is to be cleaned up."""
    found = re.fullmatch(r"services\.([^.]+)", difference.path)
    cleaned = comparison.case.run_policy.get("cleanPodPolicy", "None") != "None"
    ended = bool(comparison.go.status.get("completionTime"))
    return found is not None and cleaned and ended and difference.ours is None and found[1] not in comparison.go.pods


def _deprecated(difference: Difference, field: str) -> bool:
    if difference.path != "events" or difference.ours is None:
        return False
    _, reason, message = difference.ours
    return reason == "DeprecatedField" and field in message


def _diagnosed(difference: Difference) -> bool:
    return difference.path == "events" and bool(difference.ours and difference.ours[1] == "FailureDiagnosed")


def _dropped_by_the_recorder(difference: Difference, comparison: Comparison) -> bool:
    return difference.path == "events" and difference.go is None and comparison.go.event_count >= _GO_RECORDER_BURST


_OWN_FIELDS = ("job.status.restarts", "job.status.replacedPods", "job.status.completedIndexes")
_BACKOFF = "backoff limit"
_FAILED_PODS = "replica(s) failed."
_DEADLINE = "longer than specified deadline"

DIVERGENCES = (
    Divergence(
        "`runPolicy.managedBy` of a JAXJob is ignored",
        lambda of: of.case.kind.name == "JAXJob" and of.go.pods and is_managed_elsewhere(of.case.manifest),
    ),
    Divergence(
        "Any key of `tfReplicaSpecs` is a role", lambda of: of.case.kind.name == "TFJob" and "Banana" in of.case.roles
    ),
    Divergence(
        "A job whose deciding role has 0 replicas is Succeeded at once",
        lambda of: of.succeeded(of.go) and not of.ours.pods and _has_no_replicas(of.case),
    ),
    Divergence(
        "`activeDeadlineSeconds` is checked only when another event triggers a reconcile",
        lambda of: _has_short_deadline(of.case) and not of.failed(of.go, _DEADLINE),
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
        lambda of: of.case.does(Delete) and of.failed(of.go, _FAILED_PODS) and not of.ours.status.get("completionTime"),
        sometimes=True,
    ),
    Divergence(
        "Scaling down a TFJob or an XGBoostJob may fail it",
        lambda of: of.case.theme == "scaled" and of.failed(of.go, _FAILED_PODS) and _has_failed_in_go_alone(of),
        sometimes=True,
    ),
    Divergence(
        "A pod of an XGBoostJob that fails under `OnFailure` or `Always` fails the job",
        lambda of: of.case.kind.name == "XGBoostJob" and of.failed(of.go, _FAILED_PODS) and _has_failed_in_go_alone(of),
    ),
    Divergence(
        "A pod of a TFJob that fails under `Never` while another one is being replaced does not fail the job",
        lambda of: of.case.kind.name == "TFJob" and of.failed(of.ours, _FAILED_PODS) and "Restarting" in of.go.states,
    ),
    Divergence(
        "A TFJob with `enableDynamicWorker` and without a chief never ends",
        lambda of: of.case.theme == "dynamic workers ended" and of.failed(of.ours, _FAILED_PODS),
    ),
    Divergence(
        "A TFJob without Chief, Master and Worker never gets Running or Succeeded",
        lambda of: (
            of.case.kind.name == "TFJob"
            and of.ours.states - of.go.states
            and not of.case.roles.keys() & {"Chief", "Master", "Worker"}
        ),
    ),
    Divergence("A pod that has succeeded and is then deleted is started again", _rerun_after_success),
    Divergence(
        "Removing a role from a live job leaves its pods, services and replica status",
        lambda of: of.ours.job and of.go.counted_roles - of.ours.job["spec"][of.case.kind.replicas_field].keys(),
    ),
    Divergence(
        "An invalid job that the webhook did not see gets no status",
        lambda of: of.failed(of.ours, "failed validation") and not of.go.status.get("startTime"),
    ),
    *MPI_DIVERGENCES,
)
"""Checked before the explanations, in this order."""

EXPLANATIONS = (
    Explanation("Fields of our own", lambda found, _: _only_ours(found, *_OWN_FIELDS)),
    Explanation("Pods have only the labels of version 1.6 and later", _earlier_label),
    Explanation("PodGroups and HorizontalPodAutoscalers have no labels", _label_of_extra_object),
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
            and "Master" in of.case.roles
            and _only_ours(found, "job.status.replicaStatuses.Worker.selector")
        ),
        sometimes=True,
    ),
    Explanation(
        "A permanent exit code under `ExitCode` (but for TFJobs) leaves `completionTime` empty",
        lambda found, of: (
            of.failed(of.go, "is failing because")
            and (_only_ours(found, "job.status.completionTime") or _restart_event(found, of))
        ),
    ),
    Explanation(
        "Deleting a running pod by hand counts as a failure",
        lambda found, of: (
            of.case.does(Delete)
            and (
                _restart_event(found, of)
                or (re.fullmatch(r"job\.status\.conditions\.\d\.\d", found.path) and "Restarting" in of.go.states)
                or (re.fullmatch(r"job\.status\.replicaStatuses\.\w+\.failed", found.path) and found.ours is None)
            )
        ),
        sometimes=True,
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
        lambda found, of: of.go.job is None and found.go == _deleted_twice(of.case),
        sometimes=True,
    ),
    Explanation(
        "`schedulingPolicy` without a gang scheduler is ignored silently",
        lambda found, _: found.path == "events" and found.ours and found.ours[1] == "FieldWithoutEffect",
    ),
    Explanation(
        "Services whose pods no longer exist stay after the job has finished", _leftover_service, sometimes=True
    ),
    Explanation(
        "A job that has just failed may get an event that it is restarting",
        lambda found, of: "Failed" in of.go.states and "Failed" in of.ours.states and _restart_event(found, of),
        sometimes=True,
    ),
    Explanation(
        "A permanent exit code fails a TFJob with two events",
        lambda found, of: (
            of.case.kind.name == "TFJob"
            and of.failed(of.go, "is failing because")
            and found.path == "events"
            and found.go
            and "has failed because" in found.go[2]
        ),
    ),
    Explanation(
        "Scaling down a TFJob or an XGBoostJob may fail it",
        lambda found, of: of.case.kind.name == "XGBoostJob" and of.case.theme == "scaled" and _restart_event(found, of),
        sometimes=True,
    ),
    Explanation(
        "An XGBoostJob that succeeds gets the condition Running",
        lambda found, of: (
            of.case.kind.name == "XGBoostJob"
            and found.path == "job.status.conditions"
            and [one for one in found.go or () if one[0] != "Running"] == found.ours
            and of.succeeded(of.ours)
        ),
    ),
    Explanation(
        "`elasticPolicy` of a PaddleJob has no effect", lambda found, _: _deprecated(found, "elasticPolicy has")
    ),
    Explanation(
        "`elasticPolicy.nProcPerNode` causes an admission warning", lambda found, _: _deprecated(found, "nProcPerNode")
    ),
    Explanation(
        "Replica keys in another letter case",
        lambda found, of: any(
            _deprecated(found, f"spec.{of.case.kind.replicas_field}[{key}]") for key in of.case.roles
        ),
    ),
    Explanation(
        "Which pod of a failed job failed first",
        lambda found, _: _only_ours(found, "job.status.failure") or _diagnosed(found),
        sometimes=True,  # it comes seconds later while the ends of further pods may change it
    ),
    Explanation("A child that the cache does not show yet is created a second time", _created_twice, sometimes=True),
    Explanation("Events of a job beyond the 25th are dropped", _dropped_by_the_recorder, sometimes=True),
    *MPI_EXPLANATIONS,
)

GANG_DIVERGENCES = (
    Divergence(
        "A job whose PodGroup is not in the cache yet waits for one more reconcile, or without end",
        lambda of: of.ours.pods and not of.go.pods and not of.go.status.get("startTime"),
        sometimes=True,
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
        sometimes=True,
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
        lambda found, _: (
            found.path == "companions.PodGroup.spec.minResources.nvidia.com/gpu"
            and int(found.go or 0) < int(found.ours or 0)
        ),
    ),
    *MPI_GANG_EXPLANATIONS,
)
"""For operators with a gang scheduler."""


def not_seen(rows: Sequence[Divergence | Explanation], seen: Counter[str]) -> list[str]:
    """Rows that Go shows in every run of all cases, and that explained nothing."""
    return [one.row for one in rows if not one.sometimes and not seen[one.row]]


class DifferenceReport:
    """Collects differences: those that a row explains are counted by row, the others are listed as unexplained."""

    def __init__(self, divergences: Sequence[Divergence], explanations: Sequence[Explanation]) -> None:
        self.seen: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self._divergences = divergences
        self._explanations = explanations
        self._diverged: dict[str, Divergence] = {}
        self._cases: dict[str, Case] = {}
        self._comparisons = 0

    def compare(self, step: int, comparison: Comparison) -> None:
        """Takes in the differences of one case after one step."""
        name = comparison.case.name
        self._cases[name] = comparison.case
        self._comparisons += 1
        if name not in self._diverged and (
            found := next((one for one in self._divergences if one.since(comparison)), None)
        ):
            self._diverged[name] = found
        for difference in differences(comparison.go, comparison.ours):
            row = self._row(difference, comparison)
            if row:
                self.seen[row] += 1
            else:
                self.unexplained.append(f"{name} ({comparison.case.theme}), step {step}: {difference}")

    @property
    def summary(self) -> str:
        kinds = Counter(case.kind.name for case in self._cases.values())
        jobs = ", ".join(f"{number} {kind}s" for kind, number in kinds.items())
        return (
            f"{jobs} compared with training-operator v1.9.4 after {self._comparisons} steps: "
            f"{self.seen.total()} differences in {len(self.seen)} rows of docs/compatibility.md, "
            f"{len(self.unexplained)} in none"
        )

    def _row(self, difference: Difference, comparison: Comparison) -> str | None:
        for one in self._explanations:
            if one.matches(difference, comparison):
                return one.row
        diverged = self._diverged.get(comparison.case.name)
        return diverged.row if diverged and is_about_outcome(difference) else None
