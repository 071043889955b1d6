"""Responses as they are read, without a server: objects, pages, lines and errors."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import BadRequest, Expired, ServerError, Unreachable
from trainwright.kube.client.requests import Response
from trainwright.kube.client.responses import LineSplitter
from trainwright.objects.resources import CONFIG_MAPS


def test_error_response_is_raised_with_its_status() -> None:
    body = msgspec.json.encode({"kind": "Status", "code": 400, "message": "no"})
    with pytest.raises(BadRequest, match="no") as raised:
        responses.read_object(Response(400, {"retry-after": "3"}, body))
    assert raised.value.retry_after == 3


@pytest.mark.parametrize("body", [b"<html>please log in</html>", b"", b"[]"])
def test_response_that_is_not_json_names_the_problem(body: bytes) -> None:
    with pytest.raises(ServerError, match="is this a Kubernetes API server"):
        responses.read_object(Response(200, {}, body))


def test_redirect_is_an_error() -> None:
    with pytest.raises(Exception, match="HTTP 302"):
        responses.read_bytes(Response(302, {"location": "https://elsewhere"}, b""))


def test_a_watch_line_is_an_event() -> None:
    event = responses.read_watch_event(b'{"type":"ADDED","object":{"metadata":{"name":"p"}}}\n')
    assert (event.type, event.object) == ("ADDED", {"metadata": {"name": "p"}})


def test_an_error_event_is_raised() -> None:
    with pytest.raises(Expired, match="too old"):
        responses.read_watch_event(b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n')


def test_half_a_watch_line_is_a_broken_stream() -> None:
    with pytest.raises(Unreachable, match="not JSON"):
        responses.read_watch_event(b'{"type":"ADDED","obj')


class TestPager:
    def pager(self, limit: int = 2) -> responses.ObjectPager:
        return responses.ObjectPager(CONFIG_MAPS, namespace="n", limit=limit)

    def page(self, *names: str, version: str = "5", token: str = "") -> Response:
        items = [{"metadata": {"name": name}} for name in names]
        return Response(
            200, {}, requests.encode({"metadata": {"resourceVersion": version, "continue": token}, "items": items})
        )

    def names(self, pager: responses.ObjectPager) -> list[str]:
        return [item["metadata"]["name"] for item in pager.objects().items]

    def asked(self, pager: responses.ObjectPager) -> dict[str, str] | None:
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

    def test_items_have_api_version_and_kind(self) -> None:
        pager = self.pager()
        pager.take(self.page("a"))
        item = pager.objects().items[0]
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
        assert pager.objects().items == []


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"a\nb", b"\n\n"]), max_size=12))
def test_lines_do_not_depend_on_how_the_stream_is_cut(chunks: list[bytes]) -> None:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    rest = splitter.end()
    assert all(line and b"\n" not in line for line in rest)
    assert b"".join(lines + rest) == b"".join(chunks)
    assert splitter.end() == []


def test_a_line_without_an_end_is_cut() -> None:
    splitter = LineSplitter(max_bytes=10)
    found = [line for chunk in (b"12345", b"67890abc", b"def", b"g\nnext\nopen") for line in splitter.feed(chunk)]
    assert (found, splitter.end()) == ([b"1234567890\n", b"next\n"], [b"open"])
