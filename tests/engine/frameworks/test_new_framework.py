"""A fictitious framework that uses everything that a framework can declare: one row and one class."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest

from tests.support.engine.planning import child, created, deleted, manifests, states
from tests.support.objects.flutes import FLUTE
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, service, stored, view_service
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from trainwright.api.crd import render_crd
from trainwright.api.errors import InvalidJob
from trainwright.api.job import Job, read_job
from trainwright.api.kinds import Role
from trainwright.engine import EMBEDDED, InitContainer, Observed, Plan, Settings, plan, read_extra
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import Correction, ExtraObject, ExtraResource, Framework, PodShape, RoleState
from trainwright.engine.plan import PODS_WAVE
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS

EXTRAS = [
    ("ConfigMap", "ninth-score"),
    ("ServiceAccount", "ninth-conductor"),
    ("Role", "ninth-conductor"),
    ("RoleBinding", "ninth-conductor"),
]


def job(violins: int = 2, audience: int | None = None) -> JobBuilder:
    builder = JobBuilder("ninth", kind=ORCHESTRA).replica("Conductor").replica("Violin", violins)
    return builder if audience is None else builder.replica("Audience", audience)


def decide(
    builder: JobBuilder, *pods: PodBuilder, settings: Settings | None = None, extras: list[Object] | None = None
) -> Plan:
    observed = Observed(tuple(pod.pod() for pod in pods), extras=tuple(map(read_extra, extras or ())))
    return plan(builder.job(), observed, settings or Settings(), NOW, frameworks={"orchestra": Orchestra()})


def seat(role: str, index: int = 0) -> PodBuilder:
    return PodBuilder(role, index, job="ninth", kind=ORCHESTRA)


def playing(role: str, index: int = 0) -> PodBuilder:
    return seat(role, index).running().condition("Ready")


def extras_of(made: Plan) -> list[Object]:
    return [stored(one.render(), f"{one.name}-{one.resource.kind}") for one in made.creates if one.wave < PODS_WAVE]


def test_extra_objects_are_created_before_the_pods_that_need_them() -> None:
    made = decide(job())
    assert [(one.resource.kind, one.name) for one in made.creates if one.wave < PODS_WAVE] == EXTRAS
    assert [(one.resource.kind, one.name) for one in made.creates if one.wave == PODS_WAVE] == [
        ("Pod", "ninth-conductor"),
        ("Pod", "ninth-violin-0"),
        ("Pod", "ninth-violin-1"),
        ("Service", "ninth-violin-0"),
        ("Service", "ninth-violin-1"),
    ]
    assert {one.with_event for one in made.creates if one.wave < PODS_WAVE} == {False}
    score = child(made, "ninth-score", "ConfigMap")
    assert score["data"] == {"playing": ""}
    assert score["metadata"]["labels"] == {
        "app": "ninth",
        "training.kubeflow.org/job-name": "ninth",
        "training.kubeflow.org/operator-name": "orchestrajob-controller",
    }
    assert score["metadata"]["ownerReferences"][0]["controller"] is True


def test_launcher_without_index_has_the_declared_pod_shape() -> None:
    conductor = child(decide(job()), "ninth-conductor")
    assert "training.kubeflow.org/replica-index" not in conductor["metadata"]["labels"]
    assert conductor["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert conductor["spec"] == {
        "containers": [
            {
                "name": "conductor",
                "image": "example/train:1",
                "command": ["sleep", "60"],
                "env": [{"name": "VIOLINS", "value": "ninth-violin-0:4711,ninth-violin-1:4711"}],
                "volumeMounts": [{"name": "score", "mountPath": "/etc/score"}],
            }
        ],
        "initContainers": [{"name": "tune", "image": "trainwright/host", "command": ["true"]}],
        "volumes": [{"name": "score", "configMap": {"name": "ninth-score"}}],
        "serviceAccountName": "ninth-conductor",
        "restartPolicy": "Never",
    }


def test_service_of_a_role_without_services_is_deleted() -> None:
    conductors = view_service(service("Conductor", 0, job="ninth", kind=ORCHESTRA))
    made = plan(job().job(), Observed((), (conductors,)), Settings(), NOW, frameworks={"orchestra": Orchestra()})
    assert deleted(made, "services") == ["ninth-conductor"]


def test_template_takes_precedence_over_the_pod_shape() -> None:
    template = {
        "spec": {
            "containers": [{"name": "helper", "image": "a"}, {"name": "conductor", "image": "b", "command": ["wave"]}],
            "initContainers": [{"name": "tune", "image": "c"}],
            "volumes": [{"name": "own", "emptyDir": {}}],
            "serviceAccountName": "own",
        }
    }
    spec = child(decide(job().replica("Conductor", pod=template)), "ninth-conductor")["spec"]
    assert spec["serviceAccountName"] == "own"
    assert [one["name"] for one in spec["volumes"]] == ["own", "score"]
    assert [one["name"] for one in spec["initContainers"]] == ["tune", "tune-2"]
    helper, conductor = spec["containers"]
    assert conductor["command"] == ["wave"]
    assert helper == {"name": "helper", "image": "a"}


def test_arguments_of_the_template_are_not_passed_to_another_command() -> None:
    template = {"spec": {"containers": [{"name": "conductor", "image": "a", "args": ["--loud"]}]}}
    (conductor,) = child(decide(job().replica("Conductor", pod=template)), "ninth-conductor")["spec"]["containers"]
    assert conductor["command"] == ["sleep", "60"]
    assert "args" not in conductor


def test_env_for_all_containers_is_in_every_container() -> None:
    violin = child(decide(job()), "ninth-violin-1")
    assert violin["spec"]["containers"][0]["env"] == [
        {"name": "SEAT", "value": "1"},
        {"name": "STRINGS", "value": "4711"},
    ]
    service = child(decide(job()), "ninth-violin-1", "Service")
    assert service["spec"]["ports"] == [{"name": "strings", "port": 4711}]


def test_extra_object_is_updated_when_its_content_changes() -> None:
    first = decide(job())
    builder = job().status(first.status)
    made = decide(builder, seat("Conductor").running(), playing("Violin", 1), extras=extras_of(first))
    (update,) = made.replaces
    assert (update.resource.kind, update.name) == ("ConfigMap", "ninth-score")
    assert update.body["data"] == {"playing": "ninth-violin-1\n"}
    assert update.body["metadata"]["resourceVersion"] == "1"
    assert update.body["metadata"]["uid"] == "ninth-score-ConfigMap"
    assert update.body["metadata"]["labels"]["app"] == "ninth"
    assert not made.deletes


def test_update_keeps_fields_that_are_not_declared() -> None:
    first = decide(job())
    score, *others = extras_of(first)
    score |= {"immutable": False, "data": {"playing": "wrong"}}
    score["metadata"] |= {"annotations": {"mine": "1"}, "finalizers": ["mine"]}
    (update,) = decide(job().status(first.status), extras=[score, *others]).replaces
    assert (update.body["immutable"], update.body["data"]) == (False, {"playing": ""})
    assert update.body["metadata"]["annotations"] == {"mine": "1"}
    assert update.body["metadata"]["finalizers"] == ["mine"]


def test_extra_object_without_correction_is_not_changed() -> None:
    first = decide(job())
    extras = extras_of(first)
    (account,) = [one for one in extras if one["kind"] == "ServiceAccount"]
    account["metadata"]["labels"]["more"] = "1"
    assert not decide(job().status(first.status), extras=extras).replaces


@pytest.mark.parametrize("change", [{"ownerReferences": []}, {"deletionTimestamp": "2026-11-15T04:00:00Z"}])
def test_pods_wait_while_the_name_of_an_object_that_they_need_is_taken(change: Object) -> None:
    first = decide(job())
    score, *others = extras_of(first)
    score["metadata"] |= change
    made = decide(job().status(first.status), extras=[score, *others])
    assert created(made) == []
    assert made.requeue_at is not None
    assert bool(made.standing_events) == ("ownerReferences" in change)


@pytest.mark.parametrize("end", ["suspended", "finished"])
def test_objects_that_the_operator_may_not_delete_are_left_to_garbage_collection(end: str) -> None:
    first = decide(job())
    builder = job().run_policy(cleanPodPolicy="All").status(first.status)
    if end == "suspended":
        made = decide(builder.suspend(), seat("Conductor").running(), extras=extras_of(first))
    else:
        made = decide(builder, seat("Conductor").running(), seat("Violin").succeeded(), extras=extras_of(first))
    assert deleted(made)
    assert {delete.resource.kind for delete in made.deletes} == {"Pod"}


def test_framework_has_its_own_rule_and_text_for_running() -> None:
    started = decide(job()).status
    waiting = decide(job().status(started), seat("Conductor").running(), seat("Violin").running())
    assert waiting.status is None or states(waiting)[-1] != ("Running", "True")
    made = decide(job().status(started), seat("Conductor").running(), playing("Violin"))
    assert made.status is not None
    assert made.status["conditions"][-1]["reason"] == "OrchestraJobPlaying"
    assert made.status["conditions"][-1]["message"] == "OrchestraJob team/ninth plays."


def test_framework_has_its_own_rule_for_success() -> None:
    started = decide(job()).status
    others = decide(job().status(started), seat("Conductor").succeeded(), seat("Violin", 1).succeeded())
    assert ("Succeeded", "True") not in states(others)
    made = decide(job().status(started), seat("Conductor").running(), seat("Violin", 0).succeeded())
    assert made.status is not None
    assert made.status["conditions"][-1]["reason"] == "OrchestraJobApplauded"


def test_framework_has_its_own_order_of_failing_roles() -> None:
    started = decide(job()).status
    made = decide(job().status(started), seat("Conductor").failed(1), seat("Violin").failed(1))
    assert made.status is not None
    assert made.status["conditions"][-1]["reason"] == "OrchestraJobOutOfTune"
    assert made.status["conditions"][-1]["message"] == "OrchestraJob ninth is out of tune: 1 Violin failed."


def test_role_that_never_completes_is_counted_but_not_recorded_and_created_again() -> None:
    started = decide(job(audience=2)).status
    builder = job(audience=2).status(started)
    made = decide(builder, seat("Conductor").running(), seat("Audience", 0).succeeded())
    assert made.status is not None
    assert made.status["replicaStatuses"]["Audience"] == {"succeeded": 1}
    assert "completedIndexes" not in made.status
    assert ("Normal", "ExitedWithCode") not in {(event.type, event.reason) for event in made.events}
    assert "ninth-audience-0" not in created(made)
    again = decide(job(audience=2).status(made.status), seat("Conductor").running())
    assert "ninth-audience-0" in created(again)


def test_exit_code_is_that_of_the_main_container() -> None:
    started = decide(job()).status
    made = decide(job().status(started), seat("Conductor").failed(3))
    assert "Pod: team.ninth-conductor exited with code 3" in {event.message for event in made.events}


def test_pods_are_rendered_when_they_are_written() -> None:
    shapes, shaped = [], []

    class Counting(Orchestra):
        def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
            shapes.append(job.name)
            shape = super().pod_shapes(job, addresses, settings)

            def counting(rank: Rank) -> PodShape:
                shaped.append(rank)
                return shape(rank)

            return counting

    made = plan(job().job(), Observed(), Settings(), NOW, frameworks={"orchestra": Counting()})
    assert (shapes, shaped) == (["ninth"], []), "what pods have in common is computed once"
    manifests(made)
    assert len(shaped) == 3


def test_kind_validates_manifests_and_renders_a_crd() -> None:
    raw = job().raw()
    raw["spec"]["orchestraReplicaSpecs"]["Drum"] = raw["spec"]["orchestraReplicaSpecs"]["Violin"]
    with pytest.raises(InvalidJob) as refused:
        read_job(raw, {"OrchestraJob": ORCHESTRA})
    assert str(refused.value) == (
        'spec.orchestraReplicaSpecs[Drum]: Unsupported value: "Drum": '
        'supported values: "Conductor", "Violin", "Audience"'
    )
    crd = render_crd(ORCHESTRA)
    assert crd["metadata"]["name"] == "orchestrajobs.kubeflow.org"
    assert ORCHESTRA.resource.path("team", "ninth") == "/apis/kubeflow.org/v1/namespaces/team/orchestrajobs/ninth"


def test_the_restart_policy_of_a_role_is_its_own_default_or_the_kinds() -> None:
    replicas = job(audience=1).job().replicas
    assert [replica.restart_policy for replica in replicas.values()] == ["Never", "Never", "OnFailure"]


def test_a_framework_that_declares_nothing_gets_plain_pods() -> None:
    made = plan(job().job(), Observed(), EMBEDDED, NOW, frameworks={"orchestra": Framework()})
    assert "env" not in manifests(made)[0]["spec"]["containers"][0]
    assert made.status is not None
    assert "ports" not in made.status


def test_pods_that_still_run_when_the_job_succeeds_count_as_succeeded() -> None:
    started = decide(job()).status
    made = decide(job().status(started), seat("Conductor").running(), seat("Violin", 0).succeeded())
    assert made.status is not None
    assert made.status["replicaStatuses"] == {"Conductor": {"succeeded": 1}, "Violin": {"succeeded": 1}}


def test_every_child_names_the_field_that_it_comes_from() -> None:
    fields = {(one.resource.kind, one.name): one.job_field for one in decide(job()).creates}
    assert fields["ConfigMap", "ninth-score"] == "spec.orchestraReplicaSpecs[Conductor]"
    assert fields["Pod", "ninth-violin-0"] == "spec.orchestraReplicaSpecs[Violin].template"
    assert fields["Service", "ninth-violin-0"] == "spec.orchestraReplicaSpecs[Violin].template"


def test_pods_and_services_are_needed_and_announced() -> None:
    children = [one for one in decide(job()).creates if one.wave == PODS_WAVE]
    assert {(one.needed, one.with_event) for one in children} == {(True, True)}
    assert {one.needed for one in decide(job()).creates} == {True}


class Archive(Orchestra):
    """Keeps its score in a ConfigMap that is deleted on suspend or on finish alone, each with an event."""

    def __init__(self, *, suspend: bool, finish: bool, verb: str) -> None:
        self.score = ExtraResource(
            resource=CONFIG_MAPS,
            correction=Correction.UPDATE,
            deleted_on_suspend=suspend,
            deleted_on_finish=finish,
            events_for=frozenset({verb}),
        )
        self.extra_resources = (self.score,)

    def extra_objects(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[ExtraObject]:
        return [ExtraObject(of=self.score, name="score", content={"data": {}}, job_field="spec")]


@pytest.mark.parametrize(("suspend", "finish"), [(True, False), (False, True)])
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_an_object_says_when_it_is_deleted_and_which_events_report_it(suspend: bool, finish: bool, verb: str) -> None:
    archive = {"orchestra": Archive(suspend=suspend, finish=finish, verb=verb)}
    first = plan(job().job(), Observed(), Settings(), NOW, frameworks=archive)
    (create,) = (one for one in first.creates if one.resource == CONFIG_MAPS)
    assert create.with_event == (verb == "create")
    present = Observed(extras=(read_extra(stored(create.render(), "score-uid")),))
    done = {**(first.status or {}), "conditions": [{"type": "Succeeded", "status": "True"}]}
    for builder, goes in ((job().suspend(), suspend), (job().status(done), finish)):
        deletes = plan(builder.job(), present, Settings(), NOW, frameworks=archive).deletes
        assert [(delete.name, delete.with_event) for delete in deletes] == [("score", verb == "delete")] * goes


def test_an_update_keeps_labels_and_owners_of_others() -> None:
    first = decide(job())
    score, *others = extras_of(first)
    another = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}
    score["data"] = {}
    score["metadata"]["labels"]["mine"] = "1"
    score["metadata"]["ownerReferences"].append(another)
    (update,) = decide(job().status(first.status), extras=[score, *others]).replaces
    assert update.body["metadata"]["labels"]["mine"] == "1"
    assert update.body["metadata"]["ownerReferences"][1:] == [another]


def test_mounts_are_added_to_those_of_the_template() -> None:
    mount = {"name": "own", "mountPath": "/own"}
    template = {"spec": {"containers": [{"name": "conductor", "image": "a", "volumeMounts": [mount]}]}}
    conductor = child(decide(job().replica("Conductor", pod=template)), "ninth-conductor")
    assert [one["name"] for one in conductor["spec"]["containers"][0]["volumeMounts"]] == ["own", "score"]


def test_all_failed_pods_of_a_role_are_counted() -> None:
    started = decide(job()).status
    made = decide(job().status(started), seat("Violin", 0).failed(1), seat("Violin", 1).failed(1))
    assert made.status is not None
    assert made.status["replicaStatuses"]["Violin"] == {"failed": 2}
    assert made.status["conditions"][-1]["message"] == "OrchestraJob ninth is out of tune: 2 Violin failed."


def test_the_verbs_of_a_resource_follow_from_what_is_done_with_its_objects() -> None:
    verbs = {one.resource.kind: one.verbs for one in Orchestra.extra_resources}
    assert verbs == {
        "ConfigMap": ("create", "update"),
        "ServiceAccount": ("create",),
        "Role": ("create", "update"),
        "RoleBinding": ("create", "update"),
    }
    assert Archive(suspend=True, finish=False, verb="delete").score.verbs == ("create", "update", "delete")
    assert Archive(suspend=False, finish=True, verb="delete").score.verbs == ("create", "update", "delete")


def test_what_the_server_omits_or_fills_in_is_no_difference() -> None:
    first = decide(job())
    score, account, role, binding = extras_of(first)
    binding["subjects"][0]["apiGroup"] = ""
    assert not decide(job().status(first.status), extras=[score, account, role, binding]).replaces
    archive = {"orchestra": Archive(suspend=True, finish=True, verb="create")}
    present = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**score["metadata"], "name": "score"}}
    made = plan(job().job(), Observed(extras=(read_extra(present),)), Settings(), NOW, frameworks=archive)
    assert not made.replaces


def test_an_update_brings_annotations_back() -> None:
    class Annotated(Archive):
        def extra_objects(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[ExtraObject]:
            return [replace(one, annotations={"tempo": "allegro"}) for one in super().extra_objects(job, states)]

    frameworks = {"orchestra": Annotated(suspend=True, finish=True, verb="create")}
    first = plan(job().job(), Observed(), Settings(), NOW, frameworks=frameworks)
    score = stored(next(one.render() for one in first.creates if one.resource == CONFIG_MAPS), "u")
    assert score["metadata"].pop("annotations") == {"tempo": "allegro"}
    made = plan(job().job(), Observed(extras=(read_extra(score),)), Settings(), NOW, frameworks=frameworks)
    assert [one.body["metadata"]["annotations"] for one in made.replaces] == [{"tempo": "allegro"}]


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_a_service_account_of_the_template_stands(field: str) -> None:
    template = {"spec": {"containers": [{"name": "conductor", "image": "a"}], field: "own"}}
    spec = child(decide(job().replica("Conductor", pod=template)), "ninth-conductor")["spec"]
    assert spec[field] == "own"
    assert "ninth-conductor" not in spec.values()


def test_a_pod_waits_by_name_for_a_peer_without_a_port() -> None:
    class Patient(Orchestra):
        def waits_for(self, job: Job, rank: Rank) -> Rank | None:
            return Rank("Conductor", 0) if rank.role == "Violin" else None

    settings = Settings(init_container=InitContainer(wait_for_port=True))
    made = plan(job().job(), Observed(), settings, NOW, frameworks={"orchestra": Patient()})
    (waiting,) = child(made, "ninth-violin-0")["spec"]["initContainers"]
    assert "getent hosts ninth-conductor" in waiting["command"][2]


def test_a_role_without_index_has_exactly_one_replica() -> None:
    with pytest.raises(ValueError, match="FluteJob: Player has no index, so it must have exactly one replica"):
        replace(FLUTE, roles=(Role("Player", indexed=False),))
