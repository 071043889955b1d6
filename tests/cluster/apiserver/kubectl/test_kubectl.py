"""The real kubectl against the embedded server."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_apiserver import TOKEN, Embedded, running_embedded
from tests.support.cluster.raw_api import RawApi, raw_api
from tests.support.objects.manifests import pod
from tests.support.objects.widgets import definition, widget
from trainwright.kube.client.kubeconfig import merge_into_kubeconfig

pytestmark = pytest.mark.apiserver


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Kubectl:
    """kubectl with its own kubeconfig, cache and manifest files."""

    def __init__(self, binary: Path, directory: Path, embedded: Embedded, api: RawApi) -> None:
        self.binary = binary
        self.directory = directory
        self.embedded = embedded
        self.api = api
        self.kubeconfig = directory / "kubeconfig"
        merge_into_kubeconfig(
            self.kubeconfig, name="e", server=embedded.config.server, ca_data=embedded.ca_data, token=TOKEN
        )

    def file(self, *objects: dict[str, Any]) -> str:
        path = self.directory / "manifest.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        return str(path)

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        environment = {"HOME": str(self.directory), "KUBECONFIG": str(self.kubeconfig), "EDITOR": "sed -i s/red/blue/"}
        environment |= {"PATH": "/usr/bin:/bin"}
        return await asyncio.create_subprocess_exec(self.binary, *words, stdout=pipe, stderr=pipe, env=environment)

    async def __call__(self, *words: str, code: int = 0) -> Outcome:
        process = await self.start(*words)
        out, err = await process.communicate()
        assert process.returncode == code, f"kubectl {' '.join(words)}: {process.returncode}\n{out!r}\n{err!r}"
        return Outcome(process.returncode, out.decode(), err.decode())


@pytest.fixture
async def kubectl(kubectl_binary: Path, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with running_embedded() as embedded, raw_api(embedded.config, "default") as api:
        kubectl = Kubectl(kubectl_binary, tmp_path, embedded, api)
        await kubectl("create", "-f", kubectl.file(definition()))
        yield kubectl


async def test_create_apply_and_replace(kubectl: Kubectl) -> None:
    assert "No resources found in default namespace." in (await kubectl("get", "widgets")).err
    manifest = kubectl.file(widget("w"))
    assert (await kubectl("create", "-f", manifest)).out == "widget.example.com/w created\n"
    again = await kubectl("create", "-f", manifest, code=1)
    assert "Error from server (AlreadyExists): error when creating" in again.err
    assert 'widgets.example.com "w" already exists' in again.err

    assert (await kubectl("apply", "-f", kubectl.file(widget("a")))).out == "widget.example.com/a created\n"
    assert (await kubectl("apply", "-f", kubectl.file(widget("a")))).out == "widget.example.com/a unchanged\n"
    assert (await kubectl("apply", "-f", kubectl.file(widget("a", size=5)))).out == "widget.example.com/a configured\n"
    await kubectl("diff", "-f", kubectl.file(widget("a", size=5)))
    changed = await kubectl("diff", "-f", kubectl.file(widget("a", size=6)), code=1)
    assert "+  size: 6" in changed.out
    assert "replaced" in (await kubectl("replace", "-f", kubectl.file(widget("a", size=7)))).out
    dry = await kubectl("apply", "--dry-run=server", "-f", kubectl.file(widget("dry")))
    assert dry.out == "widget.example.com/dry created (server dry run)\n"
    await kubectl("get", "widget", "dry", code=1)


async def test_server_side_apply(kubectl: Kubectl) -> None:
    manifest = kubectl.file(widget("s", size=4))
    for _ in range(2):
        applied = await kubectl("apply", "--server-side", "-f", manifest)
        assert applied.out == "widget.example.com/s serverside-applied\n"
    other = kubectl.file(widget("s", size=5))
    conflict = await kubectl("apply", "--server-side", "--field-manager=other", "-f", other, code=1)
    assert 'conflict with "kubectl": .spec.size' in conflict.err
    await kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", other)
    assert (await kubectl("get", "widget", "s", "-o", "jsonpath={.spec.size}")).out == "5"


async def test_migration_to_server_side_apply(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", kubectl.file(widget("m", size=4)))
    await kubectl("apply", "--server-side", "--force-conflicts", "-f", kubectl.file(widget("m")))
    moved = json.loads((await kubectl("get", "widget", "m", "-o", "json", "--show-managed-fields")).out)
    assert {entry["manager"] for entry in moved["metadata"]["managedFields"]} == {"kubectl", "kubectl-last-applied"}
    # No manager applies the size any more, so it has its default again.
    assert moved["spec"]["size"] == 3


async def test_get(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", kubectl.file(widget("one"), widget("two", size=9)))
    plain = (await kubectl("get", "wi")).out.splitlines()
    assert plain[0].split() == ["NAME", "STATE", "AGE"]
    assert [line.split()[0] for line in plain[1:]] == ["one", "two"]
    wide = (await kubectl("get", "widgets", "-o", "wide")).out.splitlines()
    assert wide[0].split() == ["NAME", "STATE", "SIZE", "AGE"]
    assert wide[2].split()[:2] == ["two", "9"]
    assert "color: red" in (await kubectl("get", "widget", "one", "-o", "yaml")).out
    everywhere = (await kubectl("get", "widgets", "-A", "--sort-by=.metadata.name")).out.splitlines()
    assert everywhere[0].split() == ["NAMESPACE", "NAME", "STATE", "AGE"]
    assert everywhere[1].split()[:2] == ["default", "one"]
    missing = await kubectl("get", "widget", "nosuch", code=1)
    assert missing.err == 'Error from server (NotFound): widgets.example.com "nosuch" not found\n'
    assert "widget.example.com/one" in (await kubectl("get", "all")).out
    pages = (await kubectl("get", "widgets", "--chunk-size=1", "-o", "name")).out
    assert pages == "widget.example.com/one\nwidget.example.com/two\n"
    unknown = await kubectl("get", "gremlins", code=1)
    assert unknown.err == 'error: the server doesn\'t have a resource type "gremlins"\n'


async def test_get_watch(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", kubectl.file(widget("one")))
    process = await kubectl.start("get", "widgets", "-w", "--output-watch-events")
    assert process.stdout is not None
    assert (await process.stdout.readline()).split() == [b"EVENT", b"NAME", b"STATE", b"AGE"]
    assert (await process.stdout.readline()).split()[:2] == [b"ADDED", b"one"]
    await kubectl("delete", "widget", "one")
    assert (await process.stdout.readline()).split()[:2] == [b"DELETED", b"one"]
    process.terminate()
    await process.communicate()


async def test_pods_events_and_logs(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", kubectl.file(pod("p1") | {"metadata": {"name": "p1", "labels": {"app": "demo"}}}))
    kubectl.embedded.logs.texts["default/p1/main"] = b"hello\nworld\n"
    listed = (await kubectl("get", "pods", "-l", "app=demo")).out.splitlines()
    assert listed[1].split()[:4] == ["p1", "0/1", "Pending", "0"]
    uid = (await kubectl("get", "pod", "p1", "-o", "jsonpath={.metadata.uid}")).out
    about = {"kind": "Pod", "namespace": "default", "name": "p1", "uid": uid, "apiVersion": "v1"}
    event: dict[str, Any] = {
        "metadata": {"name": "e1"},
        "involvedObject": about,
        "reason": "Tested",
        "message": "as it should be",
    }
    event |= {"type": "Normal", "count": 1, "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "test"}}
    await kubectl("create", "-f", kubectl.file({"apiVersion": "v1", "kind": "Event"} | event))
    assert "as it should be" in (await kubectl("describe", "pod", "p1")).out
    assert "pod/p1" in (await kubectl("get", "events")).out
    assert "Tested" in (await kubectl("events", "--for", "pod/p1")).out

    assert (await kubectl("logs", "p1")).out == "hello\nworld\n"
    assert (await kubectl("logs", "-l", "app=demo", "--tail=1", "--prefix")).out == "[pod/p1/main] world\n"
    followed = await kubectl("logs", "-f", "p1", "--timestamps", "--since=10m")
    assert followed.out == "hello\nworld\n"
    assert kubectl.embedded.logs.asked[-1].follow
    assert kubectl.embedded.logs.asked[-1].timestamps
    previous = await kubectl("logs", "p1", "--previous", code=1)
    assert 'previous terminated container "main" in pod "p1" not found' in previous.err
    refused = await kubectl("exec", "p1", "--", "ls", code=1)
    assert "pod p1 does not have a host assigned" in refused.err

    assert "labeled" in (await kubectl("label", "pod", "p1", "x=y")).out
    assert "patched" in (await kubectl("patch", "pod", "p1", "-p", '{"metadata":{"annotations":{"a":"b"}}}')).out
    assert "deleted" in (await kubectl("delete", "pods", "-l", "app=demo")).out


async def test_wait(kubectl: Kubectl) -> None:
    await kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=5s")
    await kubectl("create", "-f", kubectl.file(widget("w")))
    timed_out = await kubectl("wait", "--for=condition=Done", "widget/w", "--timeout=1s", code=1)
    assert "timed out waiting for the condition" in timed_out.err
    waiting = await kubectl.start("wait", "--for=condition=Done", "widget/w", "--timeout=20s")
    status = {"status": {"conditions": [{"type": "Done", "status": "True"}]}}
    path = kubectl.api.path("widgets", "w", "status", group="apis/example.com/v1")
    assert (await kubectl.api.patch(path, status)).code == 200
    out, _ = await waiting.communicate()
    assert (waiting.returncode, out) == (0, b"widget.example.com/w condition met\n")


async def test_patch_scale_and_edit(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", kubectl.file(widget("w")))
    await kubectl("patch", "widget", "w", "--type=merge", "-p", '{"spec":{"size":5}}')
    await kubectl("patch", "widget", "w", "--type=json", "-p", '[{"op":"replace","path":"/spec/size","value":6}]')
    strategic = await kubectl("patch", "widget", "w", "-p", '{"spec":{"size":7}}', code=1)
    assert "application/strategic-merge-patch+json is not supported by example.com/v1" in strategic.err
    assert (await kubectl("scale", "widget/w", "--replicas=4")).out == "widget.example.com/w scaled\n"
    assert (await kubectl("edit", "widget", "w")).out == "widget.example.com/w edited\n"
    await kubectl("annotate", "widget", "w", "note=this")
    spec = json.loads((await kubectl("get", "widget", "w", "-o", "json")).out)["spec"]
    assert spec == {"color": "blue", "size": 4}


async def test_validation_errors_are_shown(kubectl: Kubectl) -> None:
    unknown = await kubectl("create", "-f", kubectl.file(widget("w", zz=1)), code=1)
    assert 'strict decoding error: unknown field "spec.zz"' in unknown.err
    invalid = await kubectl("create", "-f", kubectl.file(widget("w", color="green")), code=1)
    assert 'spec.color: Unsupported value: "green": supported values: "red", "blue"' in invalid.err
    lax = await kubectl("create", "--validate=warn", "-f", kubectl.file(widget("w", zz=1)))
    assert 'Warning: unknown field "spec.zz"' in lax.err


async def test_create_and_auth_send_protobuf(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "c1", "--from-literal=a=b")
    assert "a: b" in (await kubectl("get", "cm", "c1", "-o", "yaml")).out
    await kubectl("create", "secret", "generic", "s1", "--from-literal=a=b")
    assert (await kubectl("get", "secret", "s1", "-o", "jsonpath={.data.a} {.type}")).out == "Yg== Opaque"
    await kubectl("create", "ns", "n1")
    assert (await kubectl("auth", "can-i", "create", "widgets")).out == "yes\n"
    assert "kubernetes-admin" in (await kubectl("auth", "whoami")).out
    assert "[*]" in (await kubectl("auth", "can-i", "--list")).out
    refused = await kubectl("create", "pdb", "p", "--selector=a=b", "--min-available=1", code=1)
    assert "kubectl apply -f" in refused.err or "the server could not find the requested resource" in refused.err


async def test_roles_and_bindings(kubectl: Kubectl) -> None:
    await kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,widgets", "--resource-name=a")
    rules = json.loads((await kubectl("get", "role", "reader", "-o", "json")).out)["rules"]
    verbs = {"verbs": ["get", "list"], "resourceNames": ["a"]}
    assert rules == [
        {"apiGroups": [""], "resources": ["pods"]} | verbs,
        {"apiGroups": ["example.com"], "resources": ["widgets"]} | verbs,
    ]
    await kubectl("create", "serviceaccount", "robot")
    await kubectl("create", "rolebinding", "b", "--role=reader", "--serviceaccount=default:robot", "--user=u")
    wide = (await kubectl("get", "rolebindings", "-o", "wide")).out.splitlines()
    assert wide[0].split() == ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]
    assert wide[1].split()[:2] + wide[1].split()[3:] == ["b", "Role/reader", "u", "default/robot"]
    assert (await kubectl("get", "roles")).out.splitlines()[0] == "NAME     CREATED AT"
    assert (
        "pods                 []                 [a]             [get list]"
        in (await kubectl("describe", "role", "reader")).out
    )
    assert "ServiceAccount  robot  default" in (await kubectl("describe", "rolebinding", "b")).out

    await kubectl("create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics")
    await kubectl("create", "clusterrole", "sum", "--aggregation-rule=a=b")
    selector = await kubectl("get", "clusterrole", "sum", "-o", "jsonpath={.aggregationRule.clusterRoleSelectors}")
    assert json.loads(selector.out) == [{"matchLabels": {"a": "b"}}]
    await kubectl("create", "clusterrolebinding", "m", "--clusterrole=metrics", "--group=g")
    assert "Group  g" in (await kubectl("describe", "clusterrolebinding", "m")).out

    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "applied"}}
    manifest = kubectl.file(role | {"rules": rules})
    for outcome in ("created", "unchanged"):
        assert (await kubectl("apply", "-f", manifest)).out == f"role.rbac.authorization.k8s.io/applied {outcome}\n"
    refused = await kubectl("patch", "rolebinding", "b", "-p", '{"roleRef":{"name":"other"}}', code=1)
    assert "cannot change roleRef" in refused.err
    assert "deleted" in (await kubectl("delete", "role/reader", "rolebinding/b", "clusterrole/sum")).out


async def test_version_api_resources_and_explain(kubectl: Kubectl) -> None:
    assert "Server Version: v1.33" in (await kubectl("version")).out
    resources = (await kubectl("api-resources")).out
    assert "widgets" in resources
    assert "persistentvolumeclaims" in resources
    assert "Kubernetes control plane" in (await kubectl("cluster-info")).out
    assert (await kubectl("get", "--raw", "/healthz")).out == "ok"
    assert "size\t<integer>" in (await kubectl("explain", "widget.spec")).out
    assert "restartPolicy\t<string>" in (await kubectl("explain", "pod.spec")).out
    for kinds in ("pv,pvc", "crd", "nodes", "ns", "svc,sa,secrets,leases,sc"):
        await kubectl("get", kinds)


async def test_delete(kubectl: Kubectl) -> None:
    manifest = kubectl.file(widget("a"), widget("b"), widget("c"))
    await kubectl("create", "-f", manifest)
    assert 'widget.example.com "a" deleted' in (await kubectl("delete", "widget", "a")).out
    missing = await kubectl("delete", "widget", "a", code=1)
    assert 'Error from server (NotFound): widgets.example.com "a" not found' in missing.err
    await kubectl("delete", "widget", "a", "--ignore-not-found")
    assert 'widget.example.com "b" deleted' in (await kubectl("delete", "widgets", "--all")).out
    await kubectl("create", "-f", manifest)
    await kubectl("delete", "-f", manifest)
    await kubectl("create", "-f", manifest)
    await kubectl("delete", "crd", "widgets.example.com")
    gone = await kubectl("get", "widgets", code=1)
    assert "the server could not find the requested resource" in gone.err
