"""Paths of API resources."""

from trainwright.objects.resources import BUILT_IN, NODES, PODS, Resource

JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")


def test_core_resources_are_below_api() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("train") == "/api/v1/namespaces/train/pods"
    assert PODS.path("train", "master-0") == "/api/v1/namespaces/train/pods/master-0"
    assert PODS.path("train", "master-0", "log") == "/api/v1/namespaces/train/pods/master-0/log"


def test_groups_are_below_apis() -> None:
    assert JOBS.path("train", "mnist", "status") == "/apis/kubeflow.org/v1/namespaces/train/pytorchjobs/mnist/status"
    assert JOBS.api_version == "kubeflow.org/v1"
    assert JOBS.qualified_plural == "pytorchjobs.kubeflow.org"


def test_the_core_group_has_no_name() -> None:
    assert PODS.api_version == "v1"
    assert PODS.qualified_plural == "pods"


def test_path_of_a_cluster_scoped_resource_has_no_namespace() -> None:
    assert NODES.path("train", "local") == "/api/v1/nodes/local"


def test_no_two_built_in_kinds_share_a_path() -> None:
    assert len({resource.path() for resource in BUILT_IN}) == len(BUILT_IN)
