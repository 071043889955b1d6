"""A state machine that drives the engine through everything that may happen to a job, with an operator that is killed
at any point.

The watch may lag behind the API server by any number of changes, separately for jobs, pods and services, but it never
moves backwards. Status writes from an older version of the job conflict. Every plan may be applied in part or twice.
The invariants hold after each step, and the job has the expected state whenever nothing is left to do.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.engine.planning import manifests
from tests.support.engine.world import NODES, World
from tests.support.objects.jobs import JobBuilder
from trainwright.api.job import Job
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.api.kinds.jax import JAX
from trainwright.api.kinds.mpi import MPI
from trainwright.api.kinds.paddle import PADDLE
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.api.kinds.xgboost import XGBOOST
from trainwright.api.pruned_status import ADDITIONAL_FIELDS
from trainwright.engine import EMBEDDED, Observed, Plan, Settings, plan
from trainwright.engine.conditions import is_finished
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.resources import PODS

# It takes seconds, more under coverage, on a busy machine and with more examples.
pytestmark = pytest.mark.timeout(300 + settings().max_examples)

JOBS = ("one", "two")
POLICIES = ["Always", "OnFailure", "Never", "ExitCode"]
MAX_ROUNDS = 25


class EngineMachine(RuleBasedStateMachine):
    kinds: tuple[Kind, ...] = (PYTORCH,)
    plans = Bundle("plans")

    # The initial state

    @initialize(
        data=st.data(),
        embedded=st.booleans(),
        masters=st.tuples(st.booleans(), st.booleans()),
        workers=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        policy=st.sampled_from(POLICIES),
        clean=st.sampled_from(["None", "Running", "All"]),
        limit=st.none() | st.integers(0, 4),
        deadline=st.sampled_from([None, None, None, 0, 60, 5000]),
        ttl=st.sampled_from([None, None, 0, 60, 5000]),
        option=st.booleans(),
        group=st.booleans(),
        dead_node_seconds=st.none() | st.just(60),
    )
    def begin(
        self,
        data: st.DataObject,
        embedded: bool,
        masters: tuple[bool, bool],
        workers: tuple[int, int],
        policy: str,
        clean: str,
        limit: int | None,
        deadline: int | None,
        ttl: int | None,
        option: bool,
        group: bool,
        dead_node_seconds: int | None,
    ) -> None:
        """`masters`: whether each job has the kind's deciding role besides workers. `option`: whether a field of the
        kind is set that changes when jobs end."""
        self.kind = data.draw(st.sampled_from(self.kinds))
        base = EMBEDDED if embedded else Settings()
        self.world = World(replace(base, group_restart=group, dead_node_seconds=dead_node_seconds))
        self.policy, self.clean, self.limit = policy, clean, limit
        self.group, self.dead_node_seconds = group, dead_node_seconds
        self.old_group: dict[str, set[str]] = {name: set() for name in JOBS}
        self.counted: dict[str, dict[str, int]] = {name: {} for name in JOBS}
        self.excused: set[str] = set()
        self.nodes_died = False
        self.latest = self.world.now
        run_policy = {
            "cleanPodPolicy": clean,
            "backoffLimit": limit,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": ttl,
        }
        for name, master, count in zip(JOBS, masters, workers, strict=True):
            builder = JobBuilder(name, kind=self.kind).metadata(uid=f"uid-of-{name}").workers(count, policy=policy)
            builder.run_policy(**{key: value for key, value in run_policy.items() if value is not None})
            if (master or self.kind in (XGBOOST, MPI)) and self.kind is not JAX:
                builder.replica(self.kind.roles[0].name, policy=policy)
            self._set_own_fields(builder, option, data)
            self.world.put_job(builder.raw())

    def _set_own_fields(self, builder: JobBuilder, option: bool, data: st.DataObject) -> None:
        if self.kind is PYTORCH and option:
            builder.spec(elasticPolicy={"minReplicas": 1, "maxReplicas": 4})
        if self.kind is TENSORFLOW:
            builder.spec(enableDynamicWorker=option, successPolicy=data.draw(st.sampled_from(["", "AllWorkers"])))
            if data.draw(st.booleans()):
                builder.replica("PS", policy=self.policy)

    # The operator

    @rule(target=plans, name=st.sampled_from(JOBS))
    def plan_only(self, name: str) -> tuple[str, str, Plan | None]:
        """Plans from the state that the watch shows. The plan may be applied much later, or never."""
        version, made = self._decide(name)
        return name, version, made

    @rule(decided=plans, writes=st.integers(0, 12))
    def apply(self, decided: tuple[str, str, Plan | None], writes: int) -> None:
        """Applies a plan, perhaps once more, until the operator is killed after some writes."""
        name, version, made = decided
        if made is not None:
            self._apply(name, version, made, writes=writes)

    @rule(name=st.sampled_from(JOBS))
    def reconcile(self, name: str) -> None:
        self._reconcile(name)

    @rule(kind=st.sampled_from(["jobs", "pods", "services", "extras", "nodes"]), steps=st.integers(1, 10))
    def watch_advances(self, kind: str, steps: int) -> None:
        self.world.catch_up(kind, steps)

    # The kubelets

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), end=st.sampled_from([0, 1, 2, 137, 143]))
    def pod_advances(self, data: st.DataObject, end: int) -> None:
        name = self._a_pod(data)
        if self.world.is_stranded(name):
            return
        pod = self.world.pods[name]
        terminating = "deletionTimestamp" in pod["metadata"]
        match pod["status"]["phase"]:
            case "Pending" if not terminating:
                self.world.start_pod(name)
            case "Running":
                self.world.end_pod(name, end)
            case _ if terminating:
                self.world.remove_pod(name)

    @rule()
    def all_pods_start(self) -> None:
        """The usual case: all pods are created and run."""
        self.everything_settles()
        for name, pod in list(self.world.pods.items()):
            if pod["status"]["phase"] == "Pending" and not self.world.is_stranded(name):
                self.world.start_pod(name)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), end=st.sampled_from([0, 1, 137]))
    def pod_ends_and_the_operator_sees_it(self, data: st.DataObject, end: int) -> None:
        name = self._a_pod(data)
        if self.world.pods[name]["status"]["phase"] == "Running" and not self.world.is_stranded(name):
            self.world.end_pod(name, end)
        self.world.catch_up()
        for job in JOBS:
            self._reconcile(job)

    @rule(name=st.sampled_from(JOBS), end=st.sampled_from([1, 137]), seen=st.booleans())
    def collective_breaks(self, name: str, end: int, seen: bool) -> None:
        """One rank fails, and then all others: at once, or one after the other while the operator reconciles."""
        self.all_pods_start()
        for pod in [key for key in self.world.pods if key.rsplit("-", 2)[0] == name]:
            if pod in self.world.pods and self.world.pods[pod]["status"]["phase"] == "Running":
                self.world.end_pod(pod, end)
            if seen:
                self.world.catch_up()
                self._reconcile(name)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def container_restarts(self, data: st.DataObject) -> None:
        name = self._a_pod(data)
        pod = self.world.pods[name]
        restarts = pod["spec"]["restartPolicy"] != "Never" and not self.world.is_stranded(name)
        if pod["status"]["phase"] == "Running" and restarts:
            self.world.restart_container(name)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def pod_is_evicted(self, data: st.DataObject) -> None:
        name = self._a_pod(data)
        if self.world.pods[name]["status"]["phase"] in {"Pending", "Running"}:
            self.world.evict_pod(name)

    @rule(name=st.sampled_from(NODES), absent=st.booleans())
    def node_dies(self, name: str, absent: bool) -> None:
        self.nodes_died = True
        if absent:
            self.world.remove_node(name)
        else:
            self.world.kill_node(name)

    @rule(name=st.sampled_from(NODES))
    def node_returns(self, name: str) -> None:
        self.world.revive_node(name)

    # Users and other programs

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), end=st.sampled_from([None, 0, 1, 143]))
    def user_deletes_pod(self, data: st.DataObject, end: int | None) -> None:
        """The program may exit with any code after the signal."""
        name = self._a_pod(data)
        ran = self.world.pods[name]["status"]["phase"] == "Running" and not self.world.is_stranded(name)
        if not _is_done(self.world.pods[name]):
            self.excused.add(self.world.pods[name]["metadata"]["uid"])
        self.world.delete("pods", name, self.world.pods[name]["metadata"]["uid"])
        if ran and end is not None:
            self.world.end_pod(name, end)

    @precondition(lambda self: self.world.services)
    @rule(data=st.data())
    def user_deletes_service(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.services)))
        self.world.delete("services", name, self.world.services[name]["metadata"]["uid"])

    @precondition(lambda self: self.world.extras)
    @rule(data=st.data(), edited=st.booleans())
    def user_deletes_or_edits_extra_object(self, data: st.DataObject, edited: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.extras)))
        extra = self.world.extras[name]
        if edited and "data" in extra:
            self.world.replace({**extra, "data": {"hostfile": "mine"}})
        else:
            self.world.delete("extras", name, extra["metadata"]["uid"])

    @rule(name=st.sampled_from(JOBS), suspended=st.booleans())
    def user_suspends(self, name: str, suspended: bool) -> None:
        if name in self.world.jobs:
            spec = self.world.jobs[name]["spec"]
            self.world.edit_job(name, {**spec, "runPolicy": {**spec["runPolicy"], "suspend": suspended}})

    @rule(name=st.sampled_from(JOBS), count=st.integers(0, 4))
    def user_scales(self, name: str, count: int) -> None:
        if name in self.world.jobs:
            spec = self.world.jobs[name]["spec"]
            field = self.kind.replicas_field
            workers = {**spec[field]["Worker"], "replicas": count}
            self.world.edit_job(name, {**spec, field: {**spec[field], "Worker": workers}})

    @rule(seconds=st.integers(-100, 200))
    def clock_jumps(self, seconds: int) -> None:
        self.latest = max(self.latest, self.world.now)
        self.world.now += timedelta(seconds=seconds)

    # What must hold

    @rule()
    def everything_settles(self) -> None:
        """Nodes are Ready again, the watch catches up, deleted pods are removed: soon the plans are empty."""
        for name in NODES:
            self.world.revive_node(name)
        self._reconcile_until_settled()
        self._check_settled()

    @precondition(lambda self: self.dead_node_seconds is not None)
    @rule()
    def pods_on_dead_nodes_are_replaced(self) -> None:
        """Nodes stay dead: their pods are deleted after the limit, plus the time by which the clock was set back."""
        self.world.now = max(self.world.now, self.latest)
        for _ in range(2):
            self._reconcile_until_settled()
            self.world.now += timedelta(seconds=60)
        self._reconcile_until_settled()
        for name, job in self.world.jobs.items():
            if not is_finished(job["status"]):
                mine = [key for key in self.world.pods if key.rsplit("-", 2)[0] == name]
                assert not [key for key in mine if self.world.is_stranded(key) and not _is_done(self.world.pods[key])]

    def _reconcile_until_settled(self) -> None:
        for _ in range(MAX_ROUNDS):
            self._remove_deleted_pods()
            self.world.catch_up()
            wrote = [self._reconcile(name) for name in JOBS]
            if not any(wrote):
                break
        else:
            raise AssertionError(f"not settled after {MAX_ROUNDS} rounds: {self.world.jobs}")

    @invariant()
    def no_rank_has_two_pods(self) -> None:
        ranks = [_rank(pod) for pod in self._stored("pods").values()]
        assert len(ranks) == len(set(ranks))

    def teardown(self) -> None:
        """Whatever happened: if all pods succeed from now on, every job that is not suspended finishes."""
        if not hasattr(self, "world"):
            return
        for name in JOBS:
            self.user_suspends(name, suspended=False)
        for _ in range(MAX_ROUNDS):
            self.everything_settles()
            if all(is_finished(job["status"]) or self._cannot_finish(job) for job in self.world.jobs.values()):
                return
            self._all_pods_succeed()
        raise AssertionError(f"not finished after {MAX_ROUNDS} rounds: {self.world.jobs}")

    def _cannot_finish(self, job: Object) -> bool:
        """True if workers decide about the job, and it is scaled to none."""
        roles = job["spec"][self.kind.replicas_field]
        return not roles.keys() - {"Worker", "PS"} and not roles["Worker"]["replicas"]

    # Helpers

    def _reconcile(self, name: str) -> bool:
        """One complete reconcile; True if it wrote anything."""
        version, made = self._decide(name)
        if made is None or made.empty:
            return False
        self._apply(name, version, made, writes=1_000_000)
        return True

    def _decide(self, name: str) -> tuple[str, Plan | None]:
        """The version of the job that the watch shows, and the plan for it."""
        seen = self.world.look(name)
        if seen is None:
            return "", None
        job, observed = seen
        made = plan(job, observed, self.world.settings, self.world.now)
        self._check_plan(made, job, observed)
        return job.metadata.resource_version, made

    def _apply(self, name: str, version: str, made: Plan, *, writes: int) -> None:
        before = self.world.jobs.get(name)
        self.world.apply(name, made, version, writes=writes)
        after = self.world.jobs.get(name)
        self._track_groups()
        if before is not None and after is not None and after is not before:
            self._check_status(name, before.get("status") or {}, after["status"])

    def _check_plan(self, made: Plan, job: Job, observed: Observed) -> None:
        names = [(obj["kind"], obj["metadata"]["name"]) for obj in manifests(made)]
        assert len(names) == len(set(names))
        status = made.status or job.raw.get("status") or {}
        if made.status_follows:
            assert not any(status.get(field) for field in ADDITIONAL_FIELDS), "these fields are written before children"
        if made.only_counts:
            assert made == Plan(
                status={**job.raw["status"], "replicaStatuses": status["replicaStatuses"]},
                only_counts=True,
                standing_events=made.standing_events,
                requeue_at=made.requeue_at,
            ), "nothing else waits with the numbers of pods"
        if self.group and status.get("replacedPods"):
            assert "Pod" not in {kind for kind, _ in names}, "no pod is created before all old ones are gone"
        for delete in made.deletes:
            assert not delete.force or not self._is_ready_in(observed, delete.name), "its node is Ready"
        if not is_finished(status):
            done = _desired(job.raw) - _not_completed({**job.raw, "status": status})
            assert not done & {name for _, name in names}, "finished ranks are not started again"
            return
        assert not made.creates, "a finished job gets no new pods"
        removed = {delete.uid for delete in made.deletes if delete.resource is PODS}
        ended = {pod.metadata.uid for pod in observed.pods if pod.finished}
        living = {pod.metadata.uid for pod in observed.pods if not pod.finished and not pod.metadata.terminating}
        assert removed & ended == (removed & ended if self.clean == "All" else set()), "finished pods are kept"
        assert removed >= (living if self.clean != "None" else set()), "unfinished pods are deleted"
        assert self.clean != "None" or not made.deletes

    def _check_status(self, name: str, old: Object, new: Object) -> None:
        kinds = [condition["type"] for condition in new["conditions"]]
        assert kinds[0] == "Created"
        assert len(kinds) == len(set(kinds))
        assert not {"Running", "Restarting"} <= set(kinds)
        assert not (is_condition_true(new, "Succeeded") and is_condition_true(new, "Failed"))
        assert is_finished(new) == ("completionTime" in new)
        if is_finished(new):
            assert not is_condition_true(new, "Running")
        if is_finished(old):
            assert new["conditions"] == old["conditions"], "conditions of a finished job do not change"
            assert new["completionTime"] == old["completionTime"]
        if self.group:
            self._check_group_restarts(name, old, new)
        else:
            self._check_restarts(name, new)

    def _track_groups(self) -> None:
        """A pod that is created while an old group exists belongs to that group."""
        for name in JOBS:
            present = self._uids(name)
            self.old_group[name] = present if self.old_group[name] & present else set()

    def _check_group_restarts(self, name: str, old: Object, new: Object) -> None:
        """A group restart counts at most once, and ends only when no pod of the old group is left."""
        total, before = (sum((status.get("restarts") or {}).values()) for status in (new, old))
        begins = bool(new.get("replacedPods")) and not old.get("replacedPods")
        if begins:
            self.old_group[name] |= self._uids(name)
        if old.get("replacedPods") and not new.get("replacedPods") and not is_finished(new):
            assert not self.old_group[name], "a pod of the old group still exists"
        if is_condition_true(new, "Suspended"):
            assert total == 0
            self.excused |= set(new.get("replacedPods") or [])
        elif begins:
            assert total - before in self._cost_of_restart(name, new["replacedPods"])
        else:
            assert total == before, "counted without a failure"
        assert self.limit is None or total < max(self.limit, 1)

    def _cost_of_restart(self, name: str, replaced: list[str]) -> set[int]:
        """One, or zero if a pod was deleted or its node died: the operator may or may not have seen that."""
        mine = [pod for key, pod in self.world.pods.items() if key.rsplit("-", 2)[0] == name]
        causes = [pod for pod in mine if pod["metadata"]["uid"] in replaced]
        excuses = [pod for pod in mine if "deletionTimestamp" in pod["metadata"] or pod["status"].get("reason")]
        all_failed = len(causes) == len(replaced) and all(pod["status"]["phase"] == "Failed" for pod in causes)
        return {1} if all_failed and not excuses and not self.nodes_died else {0, 1}

    def _uids(self, job: str) -> set[str]:
        return {pod["metadata"]["uid"] for key, pod in self.world.pods.items() if key.rsplit("-", 2)[0] == job}

    def _is_ready_in(self, observed: Observed, pod_name: str) -> bool:
        (pod,) = [pod for pod in observed.pods if pod.name == pod_name]
        node = (observed.nodes or {}).get(pod.spec.node_name)
        return node is not None and node.ready

    def _check_restarts(self, name: str, new: Object) -> None:
        """Each failed pod is counted at most once, deleted pods are not, and the count stays below the limit."""
        total = sum((new.get("restarts") or {}).values())
        if is_condition_true(new, "Suspended"):
            assert total == 0
            self.counted[name] = {}
            self.excused |= set(new.get("replacedPods") or [])
            return
        for pod in self.world.pods.values():
            uid = pod["metadata"]["uid"]
            if uid in (new.get("replacedPods") or []) and uid not in self.excused:
                evicted = pod["status"].get("reason") == "Evicted"
                cost = self.world.restarts_of(pod["metadata"]["name"]) + (0 if evicted else 1)
                self.counted[name].setdefault(uid, cost)
        assert total <= sum(self.counted[name].values()), "counted twice, or without a failure"
        assert self.limit is None or total < max(self.limit, 1)

    def _check_settled(self) -> None:
        for name, job in self.world.jobs.items():
            pods, services = (
                {key for key, obj in self._stored(kind).items() if key.rsplit("-", 2)[0] == name}
                for kind in ("pods", "services")
            )
            desired = _desired(job)
            if is_condition_true(job["status"], "Suspended"):
                assert not pods
                assert not services
            elif not is_finished(job["status"]):
                assert pods - desired == set(), "pods beyond the number of replicas"
                assert _not_completed(job) <= pods
                assert services >= (_not_completed(job) if self.kind.roles[0].has_service else set())
                if self.kind is MPI:
                    self._check_files_of_mpirun(name)
            elif self.clean == "All":
                assert not pods
                assert not services
            elif self.clean == "Running":
                assert all(_is_done(self.world.pods[pod]) for pod in pods)
                assert services <= pods

    def _check_files_of_mpirun(self, name: str) -> None:
        """The launcher may exec in all workers, and the files that it reads name them in the order of their indexes."""
        desired = sorted(_desired(self.world.jobs[name]) - {f"{name}-launcher"})
        starting = not self._is_running(f"{name}-launcher")
        present = [pod for pod in desired if starting or self._is_running(pod)]
        files = self.world.extras[f"ConfigMap {name}-config"]["data"]
        assert files["hostfile"].split("\n")[:-1] == [f"{pod} slots=1" for pod in desired]
        assert files["discover_hosts.sh"].split("\n")[1:] == [f"echo {pod}:1" for pod in present]
        _, *exec_rules = self.world.extras[f"Role {name}-launcher"]["rules"]
        assert [rule["resourceNames"] for rule in exec_rules] == ([desired] if desired else [])
        assert {f"ServiceAccount {name}-launcher", f"RoleBinding {name}-launcher"} <= self.world.extras.keys()

    def _is_running(self, pod: str) -> bool:
        return bool(self.world.pods[pod]["status"]["phase"] == "Running")

    def _all_pods_succeed(self) -> None:
        """Running pods succeed, pending pods start, and the back-off of failed pods ends."""
        self.world.now += timedelta(minutes=6)
        for name, pod in list(self.world.pods.items()):
            if pod["status"]["phase"] == "Pending":
                self.world.start_pod(name)
            elif pod["status"]["phase"] == "Running":
                self.world.end_pod(name, 0)

    def _remove_deleted_pods(self) -> None:
        for name, pod in list(self.world.pods.items()):
            if "deletionTimestamp" in pod["metadata"] and not self.world.is_stranded(name):
                self.world.remove_pod(name)

    def _a_pod(self, data: st.DataObject) -> str:
        name: str = data.draw(st.sampled_from(sorted(self.world.pods)))
        return name

    def _stored(self, kind: str) -> dict[str, Object]:
        stored: dict[str, Object] = getattr(self.world, kind) if hasattr(self, "world") else {}
        return stored


def _rank(pod: Object) -> tuple[str, ...]:
    labels: dict[str, Any] = pod["metadata"]["labels"]
    keys = ("job-name", "replica-type", "replica-index")
    return tuple(labels.get(f"training.kubeflow.org/{key}", "") for key in keys)  # a launcher has no index


def _is_done(pod: Object) -> bool:
    return pod["status"]["phase"] in {"Succeeded", "Failed"}


def _desired(job: Object) -> set[str]:
    replicas = job["spec"][KINDS[job["kind"]].replicas_field]
    return {_child_name(job, role, index) for role, replica in replicas.items() for index in range(replica["replicas"])}


def _not_completed(job: Object) -> set[str]:
    """Desired ranks that have not completed."""
    done = set()
    for role, text in (job["status"].get("completedIndexes") or {}).items():
        for part in text.split(","):
            first, _, last = part.partition("-")
            done |= {_child_name(job, role, index) for index in range(int(first), int(last or first) + 1)}
    return _desired(job) - done


def _child_name(job: Object, role: str, index: int) -> str:
    return KINDS[job["kind"]].roles_by_label[role.lower()].child_name(job["metadata"]["name"], index)


class OtherKindsMachine(EngineMachine):
    kinds = (TENSORFLOW, TENSORFLOW, XGBOOST, PADDLE, JAX)
    """TFJobs have most variants: with and without a chief, parameter servers, dynamic workers, success policies."""


class MPIMachine(EngineMachine):
    kinds = (MPI,)


for machine in (EngineMachine, OtherKindsMachine, MPIMachine):
    machine.TestCase.settings = settings(stateful_step_count=40, deadline=None)
test_job_survives_anything = EngineMachine.TestCase
test_job_of_another_kind_survives_anything = OtherKindsMachine.TestCase
test_mpi_job_survives_anything = MPIMachine.TestCase
