"""Routes requests by their RequestInfo: resources, watches, logs, and other paths such as discovery and health."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Any

from multidict import MultiMapping

from trainwright import __version__
from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.bootstrap_policy import default_policy, with_missing_policy
from trainwright.cluster.apiserver.access.request_info import RequestInfo, read_flag, selected_name
from trainwright.cluster.apiserver.access.reviews import REVIEWS
from trainwright.cluster.apiserver.access.service_account_tokens import ISSUER
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.cluster.apiserver.admission.plugin_chain import PluginChain
from trainwright.cluster.apiserver.admission.webhooks.webhook_admission import WebhookAdmission
from trainwright.cluster.apiserver.admission.webhooks.webhook_client import LocalService, WebhookClient
from trainwright.cluster.apiserver.http import discovery
from trainwright.cluster.apiserver.http.handlers import ResourceHandlers
from trainwright.cluster.apiserver.http.monitoring import request_metrics
from trainwright.cluster.apiserver.http.monitoring.request_metrics import RequestMetrics
from trainwright.cluster.apiserver.http.monitoring.resource_metrics import METRICS, ResourceMetrics
from trainwright.cluster.apiserver.http.object_writer import ObjectWriter, existing
from trainwright.cluster.apiserver.http.openapi import OpenApi
from trainwright.cluster.apiserver.http.request_bodies import decode_options
from trainwright.cluster.apiserver.http.requests import (
    ApiRequest,
    ResourceInfo,
    SelectionPredicate,
    find_resource,
    read_integer,
    read_selectors,
)
from trainwright.cluster.apiserver.http.responses import Response, StreamingResponse, UpgradeResponse, encode
from trainwright.cluster.apiserver.http.streams.node_interface import LogReader, NoStreams, PodStreams
from trainwright.cluster.apiserver.http.streams.stream_handlers import StreamHandlers, container_of, read_log_options
from trainwright.cluster.apiserver.http.subresource_handlers import SubresourceHandlers
from trainwright.cluster.apiserver.http.watch import Watch, WatchOptions
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.apiserver.writes.patch import APPLY, patch_media_type
from trainwright.objects import Object, field_errors
from trainwright.objects.kinds.pod_subresources import LogUnavailable
from trainwright.objects.kinds.resource_usage import UsageReader
from trainwright.objects.resources import Resource

logger = logging.getLogger(__name__)

_EXPIRY_SECONDS = 60.0
_TEXT = "text/plain; charset=utf-8"
_HEALTH_ENDPOINTS = {"healthz", "livez", "readyz"}
_CHECKS = ("ping", "store")
"""They pass whenever the server answers: the store ends the process if it cannot write."""
_SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_VERSION = {
    "major": "1",
    # The kubectl of the Google Cloud SDK chooses its own version by this one; 33 is its newest.
    "minor": "33",
    "gitVersion": f"v1.33.0+trainwright-{__version__}",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


_PATHS = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
_OPENID_CONFIGURATION = {
    "issuer": ISSUER,
    "jwks_uri": f"{ISSUER}/openid/v1/jwks",
    "response_types_supported": ["id_token"],
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["ES256"],
}


@dataclass(frozen=True, slots=True)
class ServedCluster:
    """The parts of a cluster that its API server serves."""

    store: ObjectStore
    logs: LogReader
    service_network: IPv4Network
    """Services get its addresses."""
    streams: PodStreams = field(default_factory=NoStreams)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    unhealthy_components: Callable[[], Iterable[str]] = tuple
    """`/readyz` fails while there are any."""
    local_services: Mapping[tuple[str, str], LocalService] | None = None
    """Webhooks of these, by namespace and name of a Service, are called in this process."""
    admits_accounts: bool = False
    """New pods need a service account that exists and get its token as a volume; controllers must create accounts and
    the ConfigMap kube-root-ca.crt."""
    usage: UsageReader | None = None
    """With it metrics.k8s.io is served."""


class Routes:
    """All endpoints of the API server, independent of the HTTP library."""

    def __init__(self, cluster: ServedCluster, access: AccessControl) -> None:
        store, usage = cluster.store, cluster.usage
        self._cluster = cluster
        self._store = store
        self._access = access
        self._streams = StreamHandlers(cluster.streams)
        self._clock = cluster.clock
        computed: dict[Resource, Sequence[str]] = dict.fromkeys(REVIEWS, ("create",))
        if usage is not None:
            computed |= dict.fromkeys(METRICS, ("get", "list"))
        self._registry = Registry(computed)
        self._registry.follow(store)
        self._resource_metrics = ResourceMetrics(store, self._registry, usage) if usage is not None else None
        self._webhooks = WebhookAdmission(
            store, WebhookClient(store, cluster.local_services), self._registry.versions_of
        )
        plugins = PluginChain(store, access, admits_accounts=cluster.admits_accounts)
        self._writer = ObjectWriter(store, self._registry, plugins, self._webhooks, cluster.service_network)
        self._handlers = ResourceHandlers(store, self._registry, access.authorizer, plugins, self._writer)
        self._subresources = SubresourceHandlers(store, access, self._writer)
        self._openapi = OpenApi(self._registry)
        self._watches: set[Watch] = set()
        self.metrics = RequestMetrics()

    def find(self, info: RequestInfo) -> ResourceInfo | None:
        """The stored resource that a request is for; None if there is none, see `handle_unstored`."""
        return find_resource(info, self._registry)

    async def prepare(self) -> None:
        """What has to be in the store before the first request."""
        await self._create_system_objects()
        await self._writer.complete_services()

    async def _create_system_objects(self) -> None:
        """The system namespaces, and the default RBAC objects, to which rules that they lack are added."""
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in _SYSTEM_NAMESPACES
        ]
        await asyncio.gather(*(self._create_system_object(obj) for obj in (*namespaces, *default_policy())))

    async def _create_system_object(self, obj: Object) -> None:
        name, named = obj["metadata"]["name"], (obj["apiVersion"], obj["kind"])
        resources = ((kind, kind.resource) for kind in self._registry.types())
        kind = next(kind for kind, resource in resources if (resource.api_version, resource.kind) == named)
        info = ResourceInfo(kind, None, name)
        stored = self._store.get(kind.key, "", name)
        request = ApiRequest(info, "create", self._clock(), user_agent="trainwright", body=encode(obj))
        if stored is None:
            await self._handlers.create(request)
        elif changed := with_missing_policy(stored.obj, obj):
            await self._handlers.update(replace(request, verb="update", body=encode(changed)))

    async def close(self) -> None:
        """Closes connections to webhooks."""
        await self._webhooks.close()

    def stop_watches(self) -> None:
        for watch in tuple(self._watches):
            watch.stop()

    async def expire_objects_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_SECONDS)
            try:
                await self.expire_objects()
            except Exception:
                logger.exception("failed to delete expired objects")

    async def expire_objects(self) -> None:
        """Deletes what the kinds' strategies say has expired."""
        now = self._clock()
        for kind in self._registry.types():
            is_expired = kind.strategy.is_expired
            for stored in self._store.list(kind.key) if is_expired else ():
                if is_expired and is_expired(stored.obj, now):
                    info = ResourceInfo(kind, stored.key[0], stored.key[1])
                    with contextlib.suppress(errors.StatusError):
                        await self._handlers.delete(ApiRequest(info, "delete", now))

    def handle_get(self, request: ApiRequest) -> Response | StreamingResponse:
        """Get, list and watch."""
        info = request.info
        if request.verb == "watch":
            return self._watch(request)
        if info.subresource == "log":
            return self._log(request)
        response = self._handlers.get(request) if request.verb == "get" else self._handlers.list(request)
        return replace(response, warnings=(info.kind.warning,)) if info.kind.warning else response

    async def handle_connect(self, request: ApiRequest) -> UpgradeResponse:
        """Exec, attach and port-forward."""
        return await self._streams.connect(request, self._find_pod(request))

    async def handle_write(self, request: ApiRequest) -> Response:
        response = await self._write(request)
        deprecation = (request.info.kind.warning,) if request.info.kind.warning else ()
        return replace(response, warnings=(*deprecation, *request.warnings))

    async def _write(self, request: ApiRequest) -> Response:
        info = request.info
        if info.kind.conversion is not None and request.verb not in {"delete", "deletecollection"}:
            media = patch_media_type(request.content_type, info.kind) if request.verb == "patch" else ""
            return await self._handlers.write_view(request, media)
        match request.verb, info.subresource:
            case "create", "":
                return await self._handlers.create(request)
            case "create", "binding":
                return await self._subresources.bind(request)
            case "create", "eviction":
                return await self._subresources.evict(request)
            case "create", "token":
                return self._subresources.request_token(request)
            case "update" | "patch", "approval":
                return await self._subresources.approve(request)
            case "update", _:
                return await self._handlers.update(request)
            case "patch", _:
                media = patch_media_type(request.content_type, info.kind)
                return await (self._handlers.apply(request) if media == APPLY else self._handlers.patch(request, media))
            case "delete", "":
                return await self._handlers.delete(request)
            case "deletecollection", "":
                return await self._handlers.delete_collection(request)
        raise errors.method_not_allowed()

    async def handle_unstored(
        self, info: RequestInfo, query: MultiMapping[str], accept: str, body: bytes, content_type: str, user: UserInfo
    ) -> Response:
        """Discovery, OpenAPI, health, metrics, version, reviews."""
        if info.url_path.startswith(("//", "/apis//")):
            return _not_found()
        if info.is_resource_request:
            return await self._handle_computed(info, query, body, content_type, user)
        response = self._handle_non_resource(info, query, accept)
        if info.method not in {"GET", "HEAD"} and response.code == 200:
            raise errors.method_not_allowed()
        return response

    async def _handle_computed(
        self, info: RequestInfo, query: MultiMapping[str], body: bytes, content_type: str, user: UserInfo
    ) -> Response:
        """Resources of which no objects are stored."""
        kind = self._registry.find(info.group, info.version, info.resource)
        if kind is not None and (refusal := kind.refused_subresources.get(info.subresource)):
            raise errors.bad_request(refusal.format(namespace=info.namespace, name=info.name_in_path))
        resource = self._registry.find_computed(info.group, info.version, info.resource)
        if resource is None:
            return self._not_served(info.group, info.version)
        is_review, name = resource in REVIEWS, info.name_in_path
        if len(info.rest) > (1 if is_review else 2) or (info.in_namespace and not resource.namespaced):
            raise errors.not_served()
        if resource.namespaced and not info.in_namespace and (name or is_review):
            raise errors.not_served()
        if info.verb not in self._registry.computed[resource] or (info.method != "GET" and not is_review):
            raise errors.method_not_allowed()
        if resource.namespaced and not info.namespace and info.verb != "list":
            raise errors.bad_request("Namespace parameter required.")
        if self._resource_metrics is not None and not is_review:
            return await self._resource_metrics.get(resource, info, query)
        sent = decode_options(body, content_type, resource, info.namespace)
        return Response(201, encode(self._access.reviewer.review(resource, info.namespace, sent, user, self._clock())))

    def _handle_non_resource(self, info: RequestInfo, query: MultiMapping[str], accept: str) -> Response:
        path = info.url_path
        failed, excluded = tuple(self._cluster.unhealthy_components()), query.getall("exclude", [])
        if health := health_response(path, failed, verbose="verbose" in query, excluded=excluded):
            return health
        if path == "/metrics":
            stored = ((kind.key, self._store.count(kind.key)) for kind in self._registry.types())
            return Response(200, self.metrics.text(sorted(set(stored))), request_metrics.CONTENT_TYPE)
        if path.startswith("/openapi/"):
            return self._openapi_response(path, accept)
        match info.segments:
            case ("version",):
                return Response(200, encode(_VERSION))
            case ("openid", "v1", "jwks"):
                return Response(200, encode(self._access.signer.public_keys()), "application/jwk-set+json")
            case (".well-known", "openid-configuration"):
                return Response(200, encode(_OPENID_CONFIGURATION))
            case ("api" | "apis" as root,) if discovery.wants_aggregated(accept):
                listed = discovery.aggregated(self._registry, core=root == "api")
                return Response(200, encode(listed), discovery.AGGREGATED)
        return self._discovery_response(info.segments)

    def _openapi_response(self, path: str, accept: str) -> Response:
        if path == "/openapi/v2":
            return Response(200, *self._openapi.document_v2(accept))
        if path == "/openapi/v3":
            return Response(200, self._openapi.index())
        document = self._openapi.document(path.removeprefix("/openapi/v3/"))
        return _not_found() if document is None else Response(200, document)

    def _discovery_response(self, segments: Sequence[str]) -> Response:
        document: Any = None
        match segments:
            case ("api",):
                document = discovery.api_versions("127.0.0.1")
            case ("apis",):
                document = discovery.api_group_list(self._registry)
            case ("api", version):
                document = discovery.api_resource_list(self._registry, "", version)
            case ("apis", group):
                document = discovery.api_group(self._registry, group)
            case ("apis", group, version):
                document = discovery.api_resource_list(self._registry, group, version)
            case ("",):
                document = {"paths": _PATHS}
        return _not_found() if document is None else Response(200, encode(document))

    def _not_served(self, group: str, version: str) -> Response:
        if version in self._registry.versions().get(group, []):
            raise errors.not_served()
        return _not_found()

    def _watch(self, request: ApiRequest) -> StreamingResponse:
        query = request.query
        initial = read_flag(query, "sendInitialEvents")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise errors.invalid_options("ListOptions", field_errors.forbidden("resourceVersionMatch", detail))
        options = WatchOptions(
            version=read_integer(query, "resourceVersion") or None,
            namespace=request.info.namespace,
            selection=_selected(request),
            representation=request.representation,
            bookmarks=read_flag(query, "allowWatchBookmarks"),
            initial_events=initial,
            timeout=read_integer(query, "timeoutSeconds"),
        )
        watch = Watch(self._store, request.info.kind, options, self._clock)
        self._watches.add(watch)

        def release() -> None:
            watch.close()
            self._watches.discard(watch)

        return StreamingResponse(watch.lines(), "application/json", release)

    def _log(self, request: ApiRequest) -> StreamingResponse:
        pod = self._find_pod(request)
        options = read_log_options(request.query, request.now)
        container = container_of(pod, request.query.get("container", ""))
        try:
            return StreamingResponse(self._cluster.logs.read(pod, container, options), _TEXT)
        except LogUnavailable as error:
            raise errors.bad_request(str(error)) from error

    def _find_pod(self, request: ApiRequest) -> Object:
        info = request.info
        return existing(info, self._store.get(info.kind.key, info.scope, info.name)).obj


def _selected(request: ApiRequest) -> SelectionPredicate:
    """What a watch selects; one object at the deprecated path `watch/…/NAME`."""
    name, selection = request.info.name, read_selectors(request.query, request.info.kind)
    if not name:
        return selection
    if (fields := request.query.get("fieldSelector")) and selected_name(fields) != name:
        raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
    return replace(selection, fields=(*selection.fields, lambda obj: bool(obj["metadata"]["name"] == name)))


def _not_found() -> Response:
    return Response(404, b"404 page not found\n", _TEXT)


def health_response(path: str, failed: Collection[str], *, verbose: bool, excluded: Collection[str]) -> Response | None:
    """The real server's text for `/healthz`, `/livez` and `/readyz` or one of their checks, such as `/livez/ping`; None
    for other paths. `failed` are components, which only readyz has.

    Clients without a user can read it, so the reasons are only in the log.
    """
    endpoint, _, check = path.removeprefix("/").partition("/")
    if endpoint not in _HEALTH_ENDPOINTS:
        return None
    broken = [component.replace(" ", "-") for component in failed] if endpoint == "readyz" else []
    if check or path.endswith("/"):
        if check in broken:
            return Response(500, f"internal server error: {check} failed\n".encode(), _TEXT)
        return Response(200, b"ok", _TEXT) if check in _CHECKS else None
    broken = [check for check in broken if check not in excluded]
    if not broken and not verbose:
        return Response(200, b"ok", _TEXT)
    lines = [f"[+]{check} {'excluded: ok' if check in excluded else 'ok'}" for check in _CHECKS]
    lines += [f"[-]{check} failed: reason withheld" for check in broken]
    lines.append(f"{endpoint} check {'failed' if broken else 'passed'}")
    return Response(500 if broken else 200, "".join(f"{line}\n" for line in lines).encode(), _TEXT)
