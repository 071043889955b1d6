"""Requests as they go out and answers as they are read, without a server."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube import requests
from trainwright.kube.errors import BadRequest, Expired, ServerError, Unreachable
from trainwright.kube.requests import LineSplitter, PatchKind, Request, Response
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, NODES, PODS


def body_of(request: Request) -> Any:
    assert request.body is not None
    return msgspec.json.decode(request.body)


def test_names_are_escaped() -> None:
    assert (
        requests.get_request(PODS, "a/../b?c", namespace="n s").path == "/api/v1/namespaces/n%20s/pods/a%2F..%2Fb%3Fc"
    )


def test_only_what_is_said_goes_into_the_query() -> None:
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
    assert not bind.repeatable


def test_the_kind_of_a_patch_is_its_content_type() -> None:
    patch = requests.patch_request(
        PODS, "p", {"a": 1}, namespace="n", kind=PatchKind.APPLY, field_manager="me", force=True, subresource="status"
    )
    assert patch.target == "/api/v1/namespaces/n/pods/p/status?fieldManager=me&force=true"
    assert (patch.method, patch.content_type, body_of(patch)) == ("PATCH", "application/apply-patch+yaml", {"a": 1})


def test_a_json_patch_is_the_only_one_that_cannot_be_repeated() -> None:
    repeatable = {
        kind: requests.patch_request(PODS, "p", [], namespace="n", kind=kind).repeatable for kind in PatchKind
    }
    assert [kind for kind, can in repeatable.items() if not can] == [PatchKind.JSON]


def test_a_deletion_says_how_and_which_one() -> None:
    plain = requests.delete_request(NODES, "n1", namespace=None)
    assert body_of(plain) == {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    exact = requests.delete_request(PODS, "p", namespace="n", uid="u", grace_period_seconds=0, propagation=None)
    assert body_of(exact) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
    }


def test_a_watch_says_from_where_and_for_how_long() -> None:
    watch = requests.watch_request(PODS, namespace=None, resource_version="7", timeout_seconds=60, bookmarks=True)
    assert watch.target == "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=60"
    assert watch.streaming


@pytest.mark.parametrize(
    ("timeout", "bookmarks", "limit"),
    [(None, False, None), (300, False, 315), (None, True, 90), (300, True, 90), (60, True, 75)],
)
def test_how_long_a_watch_may_be_silent(timeout: int | None, bookmarks: bool, limit: float | None) -> None:
    watch = requests.watch_request(PODS, namespace=None, timeout_seconds=timeout, bookmarks=bookmarks)
    assert watch.silence_limit == limit
    told = requests.watch_request(PODS, namespace=None, timeout_seconds=timeout, bookmarks=bookmarks, silence_limit=5)
    assert told.silence_limit == 5


def test_logs_are_asked_for_as_told() -> None:
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
    assert not requests.raw_request("POST", "/x").repeatable


def test_the_namespace_is_the_callers_then_the_objects_then_the_default() -> None:
    obj: Object = {"metadata": {"name": "p", "namespace": "own"}}
    assert requests.namespace_of(PODS, obj, "told", "default") == "told"
    assert requests.namespace_of(PODS, obj, None, "default") == "own"
    assert requests.namespace_of(PODS, {"metadata": {}}, None, "default") == "default"
    assert requests.namespace_of(NODES, obj, "told", "default") is None


def test_a_bad_answer_is_raised_with_its_status() -> None:
    body = msgspec.json.encode({"kind": "Status", "code": 400, "message": "no"})
    with pytest.raises(BadRequest, match="no") as raised:
        requests.read_object(Response(400, {"retry-after": "3"}, body))
    assert raised.value.retry_after == 3


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"[]"])
def test_an_answer_of_something_else_than_kubernetes_is_named(body: bytes) -> None:
    with pytest.raises(ServerError, match="is this a Kubernetes API server"):
        requests.read_object(Response(200, {}, body))


def test_a_redirect_is_not_followed_but_refused() -> None:
    with pytest.raises(Exception, match="HTTP 302"):
        requests.read_bytes(Response(302, {"location": "https://elsewhere"}, b""))


def test_a_watch_line_is_an_event() -> None:
    event = requests.read_watch_event(b'{"type":"ADDED","object":{"metadata":{"name":"p"}}}\n')
    assert (event.type, event.object) == ("ADDED", {"metadata": {"name": "p"}})


def test_an_error_event_is_raised() -> None:
    with pytest.raises(Expired, match="too old"):
        requests.read_watch_event(b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n')


def test_half_a_watch_line_is_a_broken_stream() -> None:
    with pytest.raises(Unreachable, match="not JSON"):
        requests.read_watch_event(b'{"type":"ADDED","obj')


class TestPager:
    def pager(self, limit: int = 2) -> requests.Pager[Object]:
        return requests.object_pager(CONFIG_MAPS, namespace="n", label_selector="", field_selector="", limit=limit)

    def page(self, *names: str, version: str = "5", token: str = "") -> Response:
        items = [{"metadata": {"name": name}} for name in names]
        return Response(
            200, {}, requests.encode({"metadata": {"resourceVersion": version, "continue": token}, "items": items})
        )

    def names(self, pager: requests.Pager[Object]) -> list[str]:
        return [item["metadata"]["name"] for item in requests.object_list(CONFIG_MAPS, pager).items]

    def asked(self, pager: requests.Pager[Object]) -> dict[str, str] | None:
        return dict(pager.request.params) if pager.request else None

    def test_pages_are_fetched_until_there_is_none_left(self) -> None:
        pager = self.pager()
        assert self.asked(pager) == {"limit": "2"}
        pager.take(self.page("a", "b", token="t1"))
        assert self.asked(pager) == {"limit": "2", "continue": "t1"}
        pager.take(self.page("c"))
        assert self.asked(pager) is None
        assert self.names(pager) == ["a", "b", "c"]
        assert pager.resource_version == "5"

    def test_items_say_what_they_are(self) -> None:
        pager = self.pager()
        pager.take(self.page("a"))
        item = requests.object_list(CONFIG_MAPS, pager).items[0]
        assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")

    def test_when_later_pages_have_expired_everything_is_fetched_in_one_piece(self) -> None:
        pager = self.pager()
        pager.take(self.page("a", "b", token="t1"))
        pager.take(Response(410, {}, b""))
        assert self.asked(pager) == {}
        pager.take(self.page("x", version="9"))
        assert (self.names(pager), pager.resource_version, self.asked(pager)) == (["x"], "9", None)

    def test_an_expired_first_page_is_an_error(self) -> None:
        with pytest.raises(Expired):
            self.pager().take(Response(410, {}, b""))

    def test_a_list_of_nothing_may_be_null(self) -> None:
        pager = self.pager()
        pager.take(Response(200, {}, b'{"metadata":{"resourceVersion":"1"},"items":null}'))
        assert requests.object_list(CONFIG_MAPS, pager).items == []


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"a\nb", b"\n\n"]), max_size=12))
def test_lines_do_not_depend_on_how_the_stream_is_cut(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    rest = splitter.end()
    assert all(line and b"\n" not in line for line in rest)
    assert b"".join(lines + rest) == b"".join(chunks)
    assert splitter.end() == []
