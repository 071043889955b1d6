"""What is said of a request: labels with few values, whatever the objects are called."""

import pytest

from trainwright.kube import requests
from trainwright.kube.observing import RequestSeen
from trainwright.kube.requests import Request
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES, NODES, PODS

POD = {"metadata": {"name": "status"}}


@pytest.mark.parametrize(
    ("request_", "verb", "resource"),
    [
        (requests.get_request(PODS, "p", namespace="n"), "get", "pods"),
        (requests.get_request(NODES, "p", namespace=None), "get", "nodes"),
        (requests.get_request(NAMESPACES, "p", namespace=None), "get", "namespaces"),
        (requests.get_request(NAMESPACES, "p", namespace=None, subresource="status"), "get", "namespaces/status"),
        (requests.list_request(NAMESPACES, namespace=None), "list", "namespaces"),
        (requests.list_request(PODS, namespace="n"), "list", "pods"),
        (requests.list_request(PODS, namespace=None), "list", "pods"),
        (
            requests.list_request(CUSTOM_RESOURCE_DEFINITIONS, namespace=None),
            "list",
            "customresourcedefinitions.apiextensions.k8s.io",
        ),
        (requests.watch_request(LEASES, namespace="n"), "watch", "leases.coordination.k8s.io"),
        (requests.logs_request("p", namespace="n"), "get", "pods/log"),
        (requests.create_request(PODS, POD, namespace="n"), "create", "pods"),
        (requests.create_request(PODS, POD, namespace="n", subresource="binding"), "create", "pods/binding"),
        (requests.replace_request(PODS, POD, namespace="n", subresource="status"), "update", "pods/status"),
        (requests.patch_request(LEASES, "l", {}, namespace="n"), "patch", "leases.coordination.k8s.io"),
        (requests.delete_request(PODS, "p", namespace="n"), "delete", "pods"),
        (requests.raw_request("GET", "/version"), "get", "/version"),
        (requests.raw_request("GET", "/apis/kubeflow.org/v1"), "get", "/apis/kubeflow.org/v1"),
        (requests.raw_request("HEAD", "/healthz"), "head", "/healthz"),
    ],
)
def test_a_request_is_named_by_verb_and_resource(request_: Request, verb: str, resource: str) -> None:
    seen = RequestSeen(request_, 200, 0.5)
    assert (seen.verb, seen.resource, seen.method) == (verb, resource, request_.method)


def test_no_answer_is_an_error() -> None:
    request = requests.list_request(PODS, namespace=None)
    assert [RequestSeen(request, status, 1.0).code for status in (200, 409, None)] == ["200", "409", "<error>"]
