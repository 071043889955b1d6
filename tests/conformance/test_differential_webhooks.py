"""The webhooks of the Go training-operator v1.9.4 and ours review the same jobs: docs/compatibility.md explains every
difference."""

import itertools
import json
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.support.differential.explanations import rows_of_the_page
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.go_operator import GoOperator, running_go_operator
from tests.support.objects.jobs import JobBuilder, template
from trainwright.api.job_admission import Admission, review
from trainwright.api.kinds import KINDS as _ALL
from trainwright.api.kinds import Kind
from trainwright.objects import Object
from trainwright.operator.setup.webhook_installation import webhook_path

KINDS = {name: kind for name, kind in _ALL.items() if name != "MPIJob"}
"""The Go operator has no webhook for MPIJobs."""

Change = Callable[[Kind, Object], None]
"""Changes a valid manifest."""


def _roles(kind: Kind, job: Object) -> Object:
    roles: Object = job["spec"][kind.replicas_field]
    return roles


def _of_workers(kind: Kind, job: Object, content: Object) -> None:
    _roles(kind, job)["Worker"] |= content


def _nothing(kind: Kind, job: Object) -> None:
    """The manifest is valid."""


def _name(kind: Kind, job: Object) -> None:
    job["metadata"]["name"] = "Digits_1"


def _no_containers(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"template": {"spec": {"containers": []}}})


def _no_image(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"template": template(name=kind.container, image="")})


def _other_container(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"template": template(name="main")})


def _two_containers(kind: Kind, job: Object) -> None:
    _no_image(kind, job)
    _roles(kind, job)["Worker"]["template"]["spec"]["containers"].insert(0, {"name": "logs"})


def _unknown_role(kind: Kind, job: Object) -> None:
    _roles(kind, job)["Banana"] = {"template": template(name=kind.container)}


def _other_letter_case(kind: Kind, job: Object) -> None:
    _roles(kind, job)["worker"] = _roles(kind, job).pop("Worker")


def _no_role(kind: Kind, job: Object) -> None:
    job["spec"] = {}


def _empty_roles(kind: Kind, job: Object) -> None:
    _roles(kind, job).clear()


def _first_role_left_out(kind: Kind, job: Object) -> None:
    if len(kind.roles) > 1:
        del _roles(kind, job)[kind.roles[0].name]


def _every_role(kind: Kind, job: Object) -> None:
    for role in kind.roles:
        _roles(kind, job).setdefault(role.name, {"replicas": 1, "template": template(name=kind.container)})


def _several_leaders(kind: Kind, job: Object) -> None:
    _roles(kind, job)[kind.roles[0].name]["replicas"] = 2


def _number_left_out(kind: Kind, job: Object) -> None:
    for role in _roles(kind, job).values():
        del role["replicas"]


def _no_workers(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"replicas": 0})


def _unknown_manager(kind: Kind, job: Object) -> None:
    job["spec"]["runPolicy"] = {"managedBy": "example.com/other"}


def _multikueue(kind: Kind, job: Object) -> None:
    job["spec"]["runPolicy"] = {"managedBy": "kueue.x-k8s.io/multikueue"}


def _elastic(kind: Kind, job: Object) -> None:
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 2}


def _elastic_master(kind: Kind, job: Object) -> None:
    _elastic(kind, job)
    if len(kind.roles) > 1:
        del _roles(kind, job)["Worker"]


def _processes_twice(kind: Kind, job: Object) -> None:
    job["spec"] |= {"nprocPerNode": "2", "elasticPolicy": {"nProcPerNode": 2}}


def _restart_policy(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"restartPolicy": "Sometimes"})


def _clean_pod_policy(kind: Kind, job: Object) -> None:
    job["spec"]["runPolicy"] = {"cleanPodPolicy": "none"}


def _long_name(kind: Kind, job: Object) -> None:
    job["metadata"]["name"] = "x" * 63


def _negative_number(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"replicas": -1})


def _huge_number(kind: Kind, job: Object) -> None:
    _of_workers(kind, job, {"replicas": 100_001})


def _success_policy(kind: Kind, job: Object) -> None:
    job["spec"]["successPolicy"] = "Half"


def _everything_wrong(kind: Kind, job: Object) -> None:
    for change in (_name, _other_container):
        change(kind, job)
    _roles(kind, job)[kind.roles[0].name]["template"] = template(name=kind.container, image="")


_WEBHOOKS_SECONDS = 60.0

CHANGES: dict[str, Change] = {
    change.__name__.strip("_").replace("_", " "): change
    for change in (
        _nothing,
        _name,
        _no_containers,
        _no_image,
        _other_container,
        _two_containers,
        _unknown_role,
        _other_letter_case,
        _no_role,
        _empty_roles,
        _first_role_left_out,
        _every_role,
        _several_leaders,
        _number_left_out,
        _no_workers,
        _unknown_manager,
        _multikueue,
        _elastic,
        _elastic_master,
        _processes_twice,
        _restart_policy,
        _clean_pod_policy,
        _long_name,
        _negative_number,
        _huge_number,
        _success_policy,
        _everything_wrong,
    )
}

EXPLANATIONS = {
    ("PaddleJob", "elastic"): "`elasticPolicy` of a PaddleJob has no effect",
    ("PaddleJob", "elastic master"): "`elasticPolicy` of a PaddleJob has no effect",
    ("PaddleJob", "processes twice"): "`elasticPolicy` of a PaddleJob has no effect",
    ("TFJob", "unknown role"): "Any key of `tfReplicaSpecs` is a role",
    ("JAXJob", "unknown manager"): "`runPolicy.managedBy` of a JAXJob is ignored",
    ("TFJob", "success policy"): "Any string as `successPolicy`",
    **{(kind, "restart policy"): "Any string as `restartPolicy`" for kind in KINDS},
    **{(kind, "clean pod policy"): "Any string as `cleanPodPolicy`" for kind in KINDS},
    **{(kind, "long name"): "Names of pods and services may exceed 63 characters" for kind in KINDS},
    **{(kind, "negative number"): "Any number of replicas; where" for kind in KINDS if kind != "PyTorchJob"},
    **{(kind, "huge number"): "Any number of replicas; where" for kind in KINDS},
    **{(kind, "other letter case"): "Replica keys in another letter case" for kind in KINDS},
    **{(kind, "empty roles"): "An empty map of replicas is accepted" for kind in KINDS},
}
"""By kind and change, the start of the row."""

UPDATES = {
    "JAXJob": "`runPolicy.managedBy` of a JAXJob is ignored",
    "PyTorchJob": "`runPolicy.managedBy` of a PyTorchJob can be changed",
}
"""By kind, the row about changes of the manager."""


@pytest.fixture(scope="module")
def go_operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoOperator]:
    with running_go_operator(control_plane, directory=tmp_path_factory.mktemp("go"), kinds=list(KINDS)) as operator:
        _wait_for_webhooks(operator)
        yield operator


def _wait_for_webhooks(operator: GoOperator) -> None:
    """The Go operator is ready before it serves the paths of all kinds."""
    deadline = time.monotonic() + _WEBHOOKS_SECONDS
    for kind in KINDS.values():
        while True:
            try:
                ask(operator, kind, valid(kind))
                break
            except urllib.error.URLError:
                assert time.monotonic() < deadline, f"no webhook of {kind.name}"
                time.sleep(0.05)


@pytest.mark.apiserver
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_both_webhooks_answer_a_new_job_alike(go_operator: GoOperator, kind: Kind, change: str) -> None:
    job = valid(kind)
    CHANGES[change](kind, job)
    same = are_alike(ask(go_operator, kind, job), review(kind, job))
    assert same == ((kind.name, change) not in EXPLANATIONS)


@pytest.mark.apiserver
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_both_webhooks_answer_a_change_of_the_manager_alike(go_operator: GoOperator, kind: Kind) -> None:
    old, new = valid(kind), valid(kind)
    _multikueue(kind, new)
    for before, after in itertools.permutations((old, new)):
        same = are_alike(ask(go_operator, kind, after, before), review(kind, after, before))
        assert same == (kind.name not in UPDATES)


@pytest.mark.parametrize("row", sorted({*EXPLANATIONS.values(), *UPDATES.values()}))
def test_each_explanation_quotes_one_row_of_the_page(row: str) -> None:
    assert len([one for one in rows_of_the_page() if one.startswith(row)]) == 1


def valid(kind: Kind) -> Object:
    builder = JobBuilder(kind=kind)
    for role in dict.fromkeys((kind.roles[0].name, "Worker")):
        builder.replica(role)
    return builder.manifest()


def ask(operator: GoOperator, kind: Kind, new: Object, old: Object | None = None) -> Object:
    """The answer of the Go operator's webhook."""
    resource = kind.resource
    request = {
        "uid": "1",
        "kind": {"group": resource.group, "version": resource.version, "kind": kind.name},
        "resource": {"group": resource.group, "version": resource.version, "resource": kind.plural},
        "name": new["metadata"]["name"],
        "namespace": new["metadata"]["namespace"],
        "operation": "UPDATE" if old else "CREATE",
        "object": new,
        "oldObject": old,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    post = urllib.request.Request(
        operator.webhooks + webhook_path(kind.name), json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    context = ssl.create_default_context(cafile=operator.authority)
    with urllib.request.urlopen(post, context=context, timeout=60) as answer:
        response: Object = json.load(answer)["response"]
    return response


def are_alike(go: Object, ours: Admission) -> bool:
    """Whether both answers have the same errors and warnings, in any order."""
    rest = "" if go["allowed"] else _sorted_values(go["status"]["message"])
    for error in ours.errors:
        if (text := _sorted_values(str(error))) not in rest:
            return False
        rest = rest.replace(text, "", 1)
    return (go["allowed"], rest.strip("[], "), go.get("warnings", [])) == (ours.allowed, "", list(ours.warnings))


def _sorted_values(message: str) -> str:
    """The Go operator lists supported values in random order."""
    return re.sub(r'"[^"]*"(, "[^"]*")+', lambda found: ", ".join(sorted(found[0].split(", "))), message)
