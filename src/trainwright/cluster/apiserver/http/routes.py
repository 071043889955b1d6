"""From a path and a method to what answers it: the object API, watches, logs, and the pages about the server itself."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainwright import __version__
from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http import discovery
from trainwright.cluster.apiserver.http.bodies import decode_body
from trainwright.cluster.apiserver.http.calls import Answer, Call
from trainwright.cluster.apiserver.http.handlers import ObjectApi
from trainwright.cluster.apiserver.http.logs import LogReader, container_of, read_log_options
from trainwright.cluster.apiserver.http.requests import Target, flag, read_selection, read_target, whole_number
from trainwright.cluster.apiserver.http.reviews import answered
from trainwright.cluster.apiserver.http.tables import encode
from trainwright.cluster.apiserver.http.watch import Watch, WatchOptions
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.schema.openapi import OpenApi, v2_document
from trainwright.cluster.apiserver.storage.store import Change, ObjectStore, Stored
from trainwright.cluster.apiserver.writes.requested_change import APPLY, patch_media_type
from trainwright.objects import field_errors
from trainwright.objects.logs import LogUnavailable
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NAMESPACES, PODS
from trainwright.objects.times import parse_time

logger = logging.getLogger(__name__)

EVENT_LIFETIME = timedelta(hours=1)
_EXPIRY_SECONDS = 60.0
_TEXT = "text/plain; charset=utf-8"
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_HEALTH = {"/healthz": "healthz", "/livez": "livez", "/readyz": "readyz"}
_VERSION = {
    "major": "1",
    # The kubectl of the Google Cloud SDK picks its own version by this one; 33 is the newest that it carries.
    "minor": "33",
    "gitVersion": f"v1.33.0+trainwright-{__version__}",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


@dataclass(slots=True)
class Stream:
    """An answer without an end of its own."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str
    release: Callable[[], None] = lambda: None
    """What the generator cannot do itself at its end, as it may never have begun."""

    async def close(self) -> None:
        await self.chunks.aclose()
        self.release()


class Routes:
    """Everything below the HTTP edge."""

    def __init__(
        self,
        store: ObjectStore,
        logs: LogReader,
        clock: Callable[[], datetime],
        broken_parts: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._store = store
        self._logs = logs
        self._clock = clock
        self._broken_parts = broken_parts
        self._registry = Registry()
        self._objects = ObjectApi(store, self._registry)
        self._openapi = OpenApi(self._registry)
        self._watches: set[Watch] = set()
        for stored in store.list(CUSTOM_RESOURCE_DEFINITIONS.qualified_plural):
            self._registry.install(stored.obj)
        store.subscribe(CUSTOM_RESOURCE_DEFINITIONS.qualified_plural, self._definition_changed)

    def target(self, path: str) -> Target | None:
        """What a path means among the objects; None for the pages about the server itself."""
        return read_target(path, self._registry)

    async def prepare(self) -> None:
        """Creates the namespaces that every cluster has."""
        kind = self._registry.of(NAMESPACES)
        for name in _FIRST_NAMESPACES:
            if self._store.get(kind.key, "", name) is None:
                body = encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                await self._objects.create(
                    Call(Target(kind), "POST", {}, self._clock(), user_agent="trainwright", body=body)
                )

    def stop_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.stop()

    async def expire_events_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_SECONDS)
            try:
                await self.expire_events()
            except Exception:
                logger.exception("cannot expire events")

    async def expire_events(self) -> None:
        """Events are news: the real server forgets them after an hour, too."""
        kind = self._registry.of(EVENTS)
        now = self._clock()
        for stored in self._store.list(kind.key):
            if _event_time(stored) < now - EVENT_LIFETIME:  # not the other way round: a client may name the last day
                target = Target(kind, stored.key[0], stored.key[1])
                with contextlib.suppress(errors.ApiFailure):
                    await self._objects.delete(Call(target, "DELETE", {}, now))

    def read(self, call: Call) -> Answer | Stream:
        """GET of an object, a collection, a watch or a log."""
        target = call.target
        if target.subresource == "log":
            return self._log(call)
        if target.subresource in {"exec", "attach", "portforward"}:
            raise _not_built(target)
        if target.subresource in {"binding", "eviction", "finalize"}:
            raise errors.method_not_allowed()
        if not target.name and flag(call.query, "watch"):
            return self._watch(call)
        return self._objects.get(call) if target.name else self._objects.list(call)

    async def write(self, call: Call) -> Answer:
        answer = await self._written(call)
        return Answer(answer.code, answer.body, answer.content_type, tuple(call.warnings))

    async def _written(self, call: Call) -> Answer:
        target = call.target
        match call.method, bool(target.name), target.subresource:
            case "POST", False, "":
                return await self._objects.create(call)
            case "POST", True, "binding":
                return await self._objects.bind(call)
            case "POST", True, "eviction":
                return await self._objects.evict(call)
            case _, True, "exec" | "attach" | "portforward":
                raise _not_built(target)
            case "PUT", True, "" | "status" | "scale" | "finalize":
                return await self._objects.replace(call)
            case "PATCH", True, "" | "status" | "scale":
                media = patch_media_type(call.content_type, target.kind)
                return await (self._objects.apply(call) if media == APPLY else self._objects.patch(call, media))
            case "DELETE", True, "":
                return await self._objects.delete(call)
            case "DELETE", False, "":
                return await self._objects.delete_collection(call)
        raise errors.method_not_allowed()

    def page(
        self, method: str, path: str, query: Mapping[str, str], accept: str, body: bytes, content_type: str
    ) -> Answer:
        """Whatever is not an object: discovery, OpenAPI, health, version, reviews."""
        parts = [part for part in path.split("/") if part]
        if method == "POST" and len(parts) == 4 and parts[0] == "apis":
            for plural, kind in discovery.REVIEWS.get((parts[1], parts[2]), []):
                if plural == parts[3]:
                    review = decode_body(body, content_type, kind=kind).value
                    return Answer(201, encode(answered(kind, review if isinstance(review, dict) else {})))
        if method not in {"GET", "HEAD"}:
            return _not_found()
        if path in _HEALTH:
            broken = tuple(self._broken_parts()) if path == "/readyz" else ()
            return _health(_HEALTH[path], verbose="verbose" in query, broken=broken)
        if path == "/version":
            return Answer(200, encode(_VERSION))
        if parts and parts[0] == "openapi":
            return self._openapi_page(parts, accept)
        return self._discovery_page(parts, accept)

    def _openapi_page(self, parts: list[str], accept: str) -> Answer:
        if parts[1:] == ["v2"]:
            return Answer(200, *v2_document(accept))
        if parts[1:2] != ["v3"]:
            return _not_found()
        document = self._openapi.document("/".join(parts[2:])) if len(parts) > 2 else self._openapi.index()
        return _not_found() if document is None else Answer(200, document)

    def _discovery_page(self, parts: list[str], accept: str) -> Answer:
        document: Any = None
        match parts:
            case ["api" | "apis" as root] if discovery.wants_aggregated(accept):
                listed = discovery.aggregated(self._registry, core=root == "api")
                return Answer(200, encode(listed), discovery.AGGREGATED)
            case ["api"]:
                document = discovery.api_versions("127.0.0.1")
            case ["apis"]:
                document = discovery.api_group_list(self._registry)
            case ["api", version]:
                document = discovery.api_resource_list(self._registry, "", version)
            case ["apis", group]:
                document = discovery.api_group(self._registry, group)
            case ["apis", group, version]:
                document = discovery.api_resource_list(self._registry, group, version)
            case []:
                paths = ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]
                document = {"paths": paths}
        if document is not None:
            return Answer(200, encode(document))
        group, version = ("", parts[1]) if parts[0] == "api" else (parts[1], parts[2] if len(parts) > 2 else "")
        if version in self._registry.versions().get(group, []):
            raise errors.not_served()
        return _not_found()

    def _watch(self, call: Call) -> Stream:
        query = call.query
        initial = flag(query, "sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise errors.invalid_options("ListOptions", field_errors.forbidden("resourceVersionMatch", detail))
        options = WatchOptions(
            version=whole_number(query, "resourceVersion") or None,
            namespace=call.target.namespace,
            selection=read_selection(query, call.target.kind),
            form=call.form,
            bookmarks=flag(query, "allowWatchBookmarks"),
            initial_events=initial,
            timeout=whole_number(query, "timeoutSeconds"),
        )
        watch = Watch(self._store, call.target.kind, options, self._clock)
        self._watches.add(watch)

        def release() -> None:
            watch.close()
            self._watches.discard(watch)

        return Stream(watch.lines(), "application/json", release)

    def _log(self, call: Call) -> Stream:
        pod = self._store.get(PODS.qualified_plural, call.target.scope, call.target.name)
        if pod is None:
            raise errors.not_found(PODS, call.target.name)
        options = read_log_options(call.query, call.now)
        container = container_of(pod.obj, call.query.get("container", ""))
        try:
            return Stream(self._logs.read(pod.obj, container, options), _TEXT)
        except LogUnavailable as error:
            raise errors.bad_request(str(error)) from error

    def _definition_changed(self, change: Change) -> None:
        if change.removed:
            self._registry.uninstall(change.new.key[1])
        else:
            self._registry.install(change.new.obj)


def _event_time(stored: Stored) -> datetime:
    event = stored.obj
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return parse_time(text)


def _not_built(target: Target) -> errors.ApiFailure:
    word = {"portforward": "port-forward"}.get(target.subresource, target.subresource)
    return errors.not_implemented(
        f"kubectl {word} is not available on the embedded cluster yet: pods are processes of this machine, "
        "so use kubectl logs for their output and the machine's own tools for the rest"
    )


def _health(name: str, *, verbose: bool, broken: tuple[str, ...] = ()) -> Answer:
    """As the real server words it. Anybody may ask, so the reasons are for the log alone."""
    if not broken and not verbose:
        return Answer(200, b"ok", _TEXT)
    failed = "".join(f"[-]{part} failed: reason withheld\n" for part in broken)
    verdict = "failed" if broken else "passed"
    text = f"[+]ping ok\n[+]store ok\n{failed}{name} check {verdict}\n"
    return Answer(500 if broken else 200, text.encode(), _TEXT)


def _not_found() -> Answer:
    return Answer(404, b"404 page not found\n", _TEXT)
