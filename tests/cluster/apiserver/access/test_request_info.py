"""A request is parsed once: what the router serves is what the authorizer was asked, and what the real server asks."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.cluster.addresses import SERVICES
from tests.support.cluster.embedded_apiserver import TOKEN, RecordedLogs, tls_for_loopback
from tests.support.cluster.raw_http import status_of
from tests.support.kubernetes.audit_log import AuditedRequest, AuditedRequests
from tests.support.kubernetes.controlplane import AUDITED, ControlPlane
from tests.support.objects.manifests import pod
from tests.support.objects.request_targets import METHODS, request_targets
from tests.support.waiting import wait_until
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import (
    Attributes,
    RequestInfo,
    parse_query,
    parse_request,
    split_target,
)
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.http.routes import ServedCluster
from trainwright.cluster.apiserver.http.server import ApiServer
from trainwright.cluster.apiserver.storage.store import Change, ObjectStore, Stored, TryUpdate
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig, load_kubeconfig
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)

WRITES = {"create", "update", "patch", "delete", "deletecollection"}
CLUSTER_SCOPED = {"namespaces", "nodes"}
READ_BY_ADMISSION = {"namespaces", "resourcequotas", "limitranges", "serviceaccounts"}
NAMES = ("x", "secrets", "services", "log", "status", "pods")
VIEWER = "viewer-of-all"
OBJECTS: list[tuple[str, Resource, dict[str, Any]]] = [
    ("", NAMESPACES, {"metadata": {"name": "services"}}),
    ("", NAMESPACES, {"metadata": {"name": "secrets"}}),
    *(
        (namespace, resource, {"metadata": {"name": name}})
        for namespace in ("default", "services", "secrets")
        for resource in (CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS)
        for name in NAMES
    ),
    *((namespace, PODS, pod(name)) for namespace in ("default", "services") for name in ("x", "log")),
]


def parsed(method: str, target: str) -> RequestInfo:
    path, query = split_target(target)
    return parse_request(method, path, parse_query(query))


class TestVerbs:
    @pytest.mark.parametrize(
        ("query", "verb"),
        [
            ("", "list"),
            ("?watch", "watch"),
            ("?watch=", "watch"),
            ("?watch=TRUE", "watch"),
            ("?watch=yes", "watch"),
            ("?watch=False", "list"),
            ("?watch=0&watch=1", "list"),
            ("?watch=1&watch=0", "watch"),
            ("?watch=1;a", "list"),
            ("?watch=%zz", "list"),
            ("?%77atch=1", "watch"),
            ("?Watch=1", "list"),
        ],
    )
    def test_first_value_of_watch_decides(self, query: str, verb: str) -> None:
        assert parsed("GET", f"/api/v1/pods{query}").verb == verb

    @pytest.mark.parametrize(
        ("method", "path", "verb"),
        [
            ("POST", "/api/v1/namespaces/a/pods", "create"),
            ("GET", "/api/v1/namespaces/a/status", "get"),
            ("HEAD", "/api/v1/pods", "list"),
            ("HEAD", "/api/v1/namespaces/a/pods/x", "get"),
            ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection"),
            ("OPTIONS", "/api/v1/pods", ""),
            ("GET", "/api/v1/watch/pods", "watch"),
            ("DELETE", "/api/v1/watch/pods", "watch"),
            ("GET", "/api/v1/proxy/pods", "proxy"),
            ("OPTIONS", "/version", "options"),
        ],
    )
    def test_method_and_path(self, method: str, path: str, verb: str) -> None:
        assert parsed(method, path).verb == verb

    @pytest.mark.parametrize(
        ("target", "path"),
        [
            ("http://proxied.example/version?x=1", "/version"),
            ("https://proxied.example", ""),
            ("/version://x", "/version://x"),
            ("/version\udcc3\udca9", "/versioné"),
            ("/version\udcff", "/version\ufffd"),
        ],
    )
    def test_target_of_a_proxy_is_its_path(self, target: str, path: str) -> None:
        """Bytes that are no UTF-8 become the replacement character, as on the real server."""
        assert split_target(target)[0] == path

    @pytest.mark.parametrize(
        ("selector", "name"),
        [
            ("metadata.name=x", "x"),
            ("status.phase!=Failed,metadata.name==x", "x"),
            ("metadata.name!=x", ""),
            ("metadata.name=a/b", ""),
            ("metadata.name", ""),
            ("metadata.namespace=x", ""),
            ("status.phase=Running", ""),
        ],
    )
    def test_list_has_the_name_that_its_selector_demands(self, selector: str, name: str) -> None:
        assert parsed("GET", f"/api/v1/pods?fieldSelector={selector}").name == name

    def test_parameters_with_a_semicolon_are_left_out(self) -> None:
        assert list(parse_query("a=1&&b=2;c=3&d+e=%2B").items()) == [("a", "1"), ("d e", "+")]

    def test_malformed_escapes_are_refused(self) -> None:
        with pytest.raises(StatusError, match="malformed escape"):
            parsed("GET", "/api/v1/%zz")


@dataclass(frozen=True)
class Access:
    """What a request read or wrote in the store. A list has no name, and that of all namespaces no namespace."""

    writes: bool
    resource: str
    namespace: str | None
    name: str = ""


class RecordingStore(ObjectStore):
    def __init__(self) -> None:
        super().__init__(None)
        self.accesses: list[Access] = []

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        self.accesses.append(Access(False, resource, namespace, name))
        return super().get(resource, namespace, name)

    def list(self, resource: str, namespace: str | None = None) -> list[Stored]:
        self.accesses.append(Access(False, resource, namespace))
        return super().list(resource, namespace)

    async def guaranteed_update(self, resource: str, namespace: str, name: str, try_update: TryUpdate) -> Change | None:
        self.accesses.append(Access(True, resource, namespace, name))
        return await super().guaranteed_update(resource, namespace, name, try_update)


@dataclass(frozen=True)
class Served:
    """An embedded server in an event loop that runs while a request is under way."""

    config: ClusterConfig
    server: ApiServer
    runner: asyncio.Runner

    def status_of(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None = None) -> int:
        return self.runner.run(asyncio.to_thread(status_of, self.config, method, target, headers, body))


@contextmanager
def serving(store: ObjectStore) -> Iterator[Served]:
    tls, ca_data = tls_for_loopback()
    with asyncio.Runner() as runner:
        server = ApiServer(ServedCluster(store, RecordedLogs(), SERVICES), token=TOKEN, tls=tls)
        port = runner.run(server.start())
        yield Served(ClusterConfig(server=f"https://127.0.0.1:{port}", ca_data=ca_data, token=TOKEN), server, runner)
        runner.run(server.stop())
        store.close()


Send = Callable[[str, str], tuple[list[Attributes], list[Access]]]


@pytest.fixture(scope="module")
def send() -> Iterator[Send]:
    """Sends a request as the administrator: what the authorizer was asked, and what the request accessed."""
    asked: list[Attributes] = []
    check, store = Authorizer.check, RecordingStore()

    def recording_check(authorizer: Authorizer, user: UserInfo, wanted: Attributes) -> None:
        asked.append(wanted)
        check(authorizer, user, wanted)

    def send(method: str, target: str) -> tuple[list[Attributes], list[Access]]:
        served.runner.run(fill(store, served))
        asked.clear()
        store.accesses.clear()
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        body = b'{"metadata":{"name":"x"}}' if method in {"POST", "PUT", "PATCH"} else None
        served.status_of(method, target, {"Content-Type": media}, body)
        return [*asked], [*store.accesses]

    with patch.object(Authorizer, "check", recording_check), serving(store) as served:
        yield send


async def fill(store: RecordingStore, served: Served) -> None:
    """Objects with the names of resources, in namespaces with the names of resources."""
    async with Client(served.config, server=served.server) as client:
        for namespace, resource, obj in OBJECTS:
            if ObjectStore.get(store, resource.qualified_plural, namespace, obj["metadata"]["name"]) is None:
                await client.create(resource, obj, namespace=namespace)


@given(method=st.sampled_from(METHODS), target=request_targets())
@example("GET", "/api/v1/namespaces//services/secrets")
@example("DELETE", "/api/v1/namespaces/default/pods//x")
@example("GET", "//api/v1/namespaces/default/secrets/x")
@example("GET", "/api/v1/namespaces/default/secrets?watch=yes")
def test_router_serves_what_the_authorizer_was_asked(send: Send, method: str, target: str) -> None:
    asked, accesses = send(method, target)
    assert len(asked) == 1
    [wanted] = asked
    resource = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    many = wanted.verb in {"list", "watch", "deletecollection"}
    for access in accesses:
        if wanted.verb == "create" and not access.writes and access.resource in READ_BY_ADMISSION:
            continue
        assert wanted.is_resource_request
        assert access.resource == resource
        assert not access.writes or wanted.verb in WRITES
        assert (access.namespace or "") == ("" if resource in CLUSTER_SCOPED else wanted.namespace)
        assert many or access.name == ("x" if wanted.verb == "create" and not wanted.name else wanted.name)


Compare = Callable[[str, str], None]


@pytest.fixture(scope="module")
def compare(control_plane: ControlPlane) -> Iterator[Compare]:
    """Sends a request to both servers, as a user who may only read, and compares what they make of it."""
    numbers = itertools.count(1)
    real = load_kubeconfig(control_plane.users[AUDITED])
    log = AuditedRequests(control_plane.audit_log)
    headers = {"Impersonate-User": VIEWER}

    def compare(method: str, target: str) -> None:
        identity = f"request-{next(numbers)}"
        code = status_of(real, method, target, headers | {"Audit-ID": identity})
        info, answer = parsed(method, target), served.status_of(method, target, headers)
        if info.opens_pod_session:  # the embedded server asks for `create` at once, the real one asks for `get` first
            assert answer in {code, 403}
        elif code == 500:  # the namespace `..`, and a path that ends with `watch` or `proxy`
            assert answer < 500
        else:
            assert answer == code
        if code == 500 and info.resource in {"watch", "proxy"}:
            return  # the real server has not parsed it
        wait_until(lambda: log.read(identity))
        assert log.read(identity) == AuditedRequest(
            info.verb, info.group, info.version, info.resource, info.subresource, info.namespace, info.name, code
        )

    with serving(ObjectStore(None)) as served:
        allow_reads(real)
        served.runner.run(asyncio.to_thread(allow_reads, served.config))
        wait_until(lambda: status_of(real, "GET", "/api/v1/pods", headers) == 200)
        yield compare


def allow_reads(config: ClusterConfig) -> None:
    """Lets the user read everything."""
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"nonResourceURLs": ["*"], "verbs": ["get"]},
    ]
    reference = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": VIEWER}
    subjects = [{"kind": "User", "name": VIEWER, "apiGroup": CLUSTER_ROLES.group}]
    client = SyncClient(config)
    client.create(CLUSTER_ROLES, {"metadata": {"name": VIEWER}, "rules": rules})
    client.create(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": VIEWER}, "roleRef": reference, "subjects": subjects})
    client.close()


@pytest.mark.apiserver
@given(method=st.sampled_from(METHODS), target=request_targets())
def test_requests_mean_what_the_audit_log_of_the_real_server_says(compare: Compare, method: str, target: str) -> None:
    compare(method, target)
