"""Requests as they are sent, without a server."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from trainwright.kube.client import requests
from trainwright.kube.client.requests import PatchKind, Request, RequestResult
from trainwright.objects import Object
from trainwright.objects.resources import NODES, PODS, Resource


def body_of(request: Request) -> Any:
    assert request.body is not None
    return msgspec.json.decode(request.body)


def test_names_are_escaped() -> None:
    assert (
        requests.get_request(PODS, "a/../b?c", namespace="n s").path == "/api/v1/namespaces/n%20s/pods/a%2F..%2Fb%3Fc"
    )


def test_query_contains_only_given_parameters() -> None:
    assert requests.list_request(PODS, namespace=None).target == "/api/v1/pods"
    full = requests.list_request(
        PODS, namespace="n", label_selector="a=b,c in (d)", field_selector="x!=y", limit=5, continue_token="t&"
    )
    assert full.target == (
        "/api/v1/namespaces/n/pods?labelSelector=a%3Db%2Cc+in+%28d%29&fieldSelector=x%21%3Dy&limit=5&continue=t%26"
    )


def test_a_created_object_goes_to_its_collection_or_to_a_subresource() -> None:
    binding = {"metadata": {"name": "p"}, "target": {"name": "local"}}
    assert requests.create_request(PODS, binding, namespace="n").path == "/api/v1/namespaces/n/pods"
    bind = requests.create_request(PODS, binding, namespace="n", subresource="binding")
    assert (bind.method, bind.path, body_of(bind)) == ("POST", "/api/v1/namespaces/n/pods/p/binding", binding)
    assert not bind.idempotent


def test_the_kind_of_a_patch_is_its_content_type() -> None:
    patch = requests.patch_request(
        PODS, "p", {"a": 1}, namespace="n", kind=PatchKind.APPLY, field_manager="me", force=True, subresource="status"
    )
    assert patch.target == "/api/v1/namespaces/n/pods/p/status?fieldManager=me&force=true"
    assert (patch.method, patch.content_type, body_of(patch)) == ("PATCH", "application/apply-patch+yaml", {"a": 1})


def test_a_json_patch_is_the_only_one_that_cannot_be_repeated() -> None:
    idempotent = {
        kind: requests.patch_request(PODS, "p", [], namespace="n", kind=kind).idempotent for kind in PatchKind
    }
    assert [kind for kind, can in idempotent.items() if not can] == [PatchKind.JSON]


def test_delete_options() -> None:
    plain = requests.delete_request(NODES, "n1", namespace=None)
    assert body_of(plain) == {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    exact = requests.delete_request(PODS, "p", namespace="n", uid="u", grace_period_seconds=0, propagation=None)
    assert body_of(exact) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
    }


def test_watch_parameters() -> None:
    watch = requests.watch_request(PODS, namespace=None, resource_version="7", timeout_seconds=60, bookmarks=True)
    assert watch.target == "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=60"
    assert watch.streaming


@pytest.mark.parametrize(
    ("timeout", "bookmarks", "limit"),
    [(None, False, None), (300, False, 315), (None, True, 90), (300, True, 90), (60, True, 75)],
)
def test_read_timeout_of_a_watch(timeout: int | None, bookmarks: bool, limit: float | None) -> None:
    watch = requests.watch_request(PODS, namespace=None, timeout_seconds=timeout, bookmarks=bookmarks)
    assert watch.read_timeout == limit
    told = requests.watch_request(PODS, namespace=None, timeout_seconds=timeout, bookmarks=bookmarks, read_timeout=5)
    assert told.read_timeout == 5


def test_log_parameters() -> None:
    request = requests.logs_request(
        "p",
        namespace="n",
        container="c",
        follow=True,
        since_time=datetime(2026, 11, 15, 4, 5, 6, 7, tzinfo=UTC),
        tail_lines=0,
        timestamps=True,
        previous=True,
        limit_bytes=1024,
    )
    assert dict(request.params) == {
        "container": "c",
        "follow": "true",
        "sinceTime": "2026-11-15T04:05:06.000007Z",
        "tailLines": "0",
        "timestamps": "true",
        "previous": "true",
        "limitBytes": "1024",
    }


def test_raw_requests_take_bytes_and_objects() -> None:
    assert requests.raw_request("GET", "/version").target == "/version"
    assert requests.raw_request("POST", "/x", body={"a": 1}, params={"b": "c"}).body == b'{"a":1}'
    assert requests.raw_request("PUT", "/x", body=b"raw").body == b"raw"
    assert not requests.raw_request("POST", "/x").idempotent


def test_the_namespace_is_the_callers_then_the_objects_then_the_default() -> None:
    obj: Object = {"metadata": {"name": "p", "namespace": "own"}}

    def namespace(resource: Resource, obj: Object, namespace: str | None = None) -> str | None:
        """The path says it: /api/v1/namespaces/NAMESPACE/pods."""
        request = requests.create_request(resource, obj, namespace=namespace, default_namespace="default")
        _, _, _, *rest = request.path.split("/")
        return rest[1] if rest[0] == "namespaces" else None

    assert namespace(PODS, obj, "told") == "told"
    assert namespace(PODS, obj) == "own"
    assert namespace(PODS, {"metadata": {}}) == "default"
    assert namespace(NODES, obj, "told") is None


def test_result_without_a_response_has_the_code_of_an_error() -> None:
    request = requests.list_request(PODS, namespace=None)
    results = [RequestResult(request, status, 1.0) for status in (200, 409, None)]
    assert [(one.method, one.code) for one in results] == [("GET", "200"), ("GET", "409"), ("GET", "<error>")]
