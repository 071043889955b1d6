"""The operator's caches: the children of each job, and what the response to a DELETE means."""

from typing import Any

import pytest

from tests.support.objects.jobs import JobBuilder, PodBuilder, service
from trainwright.api.kinds import KINDS
from trainwright.api.labels import JOB_NAME
from trainwright.engine import read_extra
from trainwright.engine.framework import CONFIG_MAP
from trainwright.engine.frameworks.pytorch import AUTOSCALER
from trainwright.kube.controller.store import raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    NODES,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from trainwright.operator.reconcile.caches import Caches, is_terminating

RAW = JobBuilder().master().raw()
JOB = raw_metadata(RAW)
OWNER = controller_reference(RAW)


def test_job_observes_its_children_and_other_objects_with_its_name() -> None:
    caches = Caches(KINDS)
    children = [
        PodBuilder("Master", 0).raw(),
        PodBuilder("Worker", 0, uid="of-a-former-job").owner("another-uid").raw(),
        PodBuilder("Worker", 1, uid="without-owner").owner(None).raw(),
        PodBuilder("Worker", 0, job="other", uid="of-another-job").owner("other-uid").raw(),
    ]
    for child in children:
        caches.pods.remember(child)
    caches.services.remember(service("Master", 0))

    observed = caches.observe(JOB)
    assert sorted(pod.metadata.uid for pod in observed.pods) == [
        "digits-master-0-uid",
        "of-a-former-job",
        "without-owner",
    ]
    assert [one.metadata.name for one in observed.services] == ["digits-master-0"]


def test_relabelled_child_is_still_observed_by_its_owner() -> None:
    caches = Caches(KINDS)
    caches.pods.remember(PodBuilder("Master", 0).metadata(labels={"training.kubeflow.org/job-name": "renamed"}).raw())
    assert len(caches.observe(JOB).pods) == 1


def test_response_about_a_child_without_job_label_is_not_cached() -> None:
    """The label was removed while our write was in flight. The watch has reported the child as deleted already."""
    caches = Caches(KINDS)
    caches.pods.remember(PodBuilder("Master", 0).raw())
    caches.pods.remember(PodBuilder("Master", 0).metadata(labels={}, resourceVersion="1000").raw())
    caches.services.remember({**service("Master", 0), "metadata": {"name": "s", "resourceVersion": "1000"}})

    observed = caches.observe(JOB)

    assert (observed.pods, observed.services) == ((), ())


def test_extra_objects_are_found_by_owner_and_by_the_label_with_the_jobs_name() -> None:
    caches = Caches(KINDS, extras=[AUTOSCALER, CONFIG_MAP])
    autoscaler = extra(AUTOSCALERS, "digits", {"spec": {"maxReplicas": 3}}, labels={JOB_NAME: "digits"})
    owned = extra(CONFIG_MAPS, "notes", {"data": {"a": "1"}}, labels={JOB_NAME: "renamed"}, ownerReferences=[OWNER])
    for one in (autoscaler, owned, extra(AUTOSCALERS, "other", {}, labels={JOB_NAME: "other"})):
        caches.children(one["kind"]).remember(one)
    found = caches.observe(JOB).extras
    assert [(one.kind, one.metadata.name, one.content) for one in found] == [
        ("HorizontalPodAutoscaler", "digits", {"spec": {"maxReplicas": 3}}),
        ("ConfigMap", "notes", {"data": {"a": "1"}}),
    ]


def test_object_that_no_watch_shows_is_observed_until_its_job_is_forgotten() -> None:
    caches = Caches(KINDS)
    caches.claim(JOB.uid, read_extra(extra(SERVICE_ACCOUNTS, "digits-launcher", {})))
    (found,) = caches.observe(JOB).extras
    assert (found.kind, found.metadata.name) == ("ServiceAccount", "digits-launcher")
    caches.forget_claims(JOB.uid)
    assert caches.observe(JOB).extras == ()


def extra(resource: Resource, name: str, content: Object, **metadata: Any) -> Object:
    known = {"name": name, "namespace": JOB.namespace, "uid": name, "resourceVersion": "1", **metadata}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": known, **content}


def test_nodes_and_priorities_are_observed_where_the_operator_watches_them() -> None:
    assert Caches(KINDS).observe(JOB).nodes is None
    caches = Caches(KINDS, cluster_resources=[NODES, PRIORITY_CLASSES])
    assert caches.nodes is not None
    assert caches.priorities is not None
    caches.nodes.remember({"metadata": {"name": "n1", "resourceVersion": "1"}})
    caches.priorities.remember({"metadata": {"name": "high", "resourceVersion": "1"}, "value": 10})
    observed = caches.observe(JOB)
    assert observed.nodes is not None
    assert list(observed.nodes) == ["n1"]
    assert len(observed.nodes) == 1
    assert observed.nodes["n1"].metadata.name == "n1"
    assert "n2" not in observed.nodes
    assert observed.priorities == {"high": 10}


@pytest.mark.parametrize(
    ("response", "terminating"),
    [
        pytest.param(PodBuilder().terminating(grace=30).raw(), True, id="grace period runs"),
        pytest.param(PodBuilder().terminating(grace=0).raw(), False, id="deleted at once"),
        pytest.param(
            PodBuilder().terminating(grace=0).metadata(finalizers=["example.com/hold"]).raw(),
            True,
            id="has a finalizer",
        ),
        pytest.param(service("Worker", 0), False, id="a service has no grace period"),
        pytest.param({"kind": "Status", "status": "Success"}, False, id="a Status"),
        pytest.param({}, False, id="not found"),
    ],
)
def test_response_to_a_delete_shows_whether_the_object_still_exists(response: Object, terminating: bool) -> None:
    assert is_terminating(response) is terminating


def test_deletion_is_cached_before_the_watch_event_arrives() -> None:
    caches = Caches(KINDS)
    pod = PodBuilder("Worker", 0).raw()
    caches.pods.remember(pod)

    response = PodBuilder("Worker", 0).terminating().metadata(resourceVersion="2").raw()
    caches.pods.remember_deletion(response, key="team/digits-worker-0", uid="digits-worker-0-uid")
    (known,) = caches.observe(JOB).pods
    assert known.metadata.terminating

    caches.pods.remember_deletion({"kind": "Status"}, key="team/digits-worker-0", uid="digits-worker-0-uid")
    assert caches.observe(JOB).pods == ()
