"""Files with content from the API: downwardAPI, projected, tokens; and that files follow their objects."""

import json
from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container, python, terminated
from trainwright.objects.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
LIST_PODS = f"""
import json, os, ssl, urllib.request, urllib.error
read = lambda name: open("{ACCOUNT}/" + name).read()
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
ca = "{ACCOUNT}/ca.crt"
context = ssl.create_default_context(cafile=ca) if os.path.exists(ca) else ssl._create_unverified_context()
def get(path):
    headers = {{"Authorization": "Bearer " + read("token")}}
    request = urllib.request.Request(f"https://{{host}}:{{port}}{{path}}", headers=headers)
    try:
        return [one["metadata"]["name"] for one in json.load(urllib.request.urlopen(request, context=context))["items"]]
    except urllib.error.HTTPError as error:
        return error.code
namespace = "/api/v1/namespaces/" + read("namespace")
print(json.dumps([get(namespace + "/pods"), get(namespace + "/secrets")]))
"""


def mount(path: str = "/v", **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "v", "mountPath": path, **fields}]


def volume(**source: Any) -> list[dict[str, Any]]:
    return [{"name": "v", **source}]


def follow(path: str) -> str:
    """A script that prints a file whenever its content changes."""
    changed = f'new=$(cat {path} 2>/dev/null || echo none); [ "$new" = "$old" ] || echo "[$new]"; old=$new'
    return f"old=nothing; while :; do {changed}; sleep 0.1; done"


async def test_files_have_fields_of_the_pod(node: NodeNamespace) -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "deep/name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o400},
        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['example.com/note']"}},
    ]
    metadata = {"labels": {"b": "2", "a": "1"}, "annotations": {"example.com/note": 'two\n"lines"'}}
    script = "cat /v/labels; echo; cat /v/deep/name; echo; cat /v/note; echo; stat -L -c %a /v/deep/name; ls /v"
    main = container(script, volumeMounts=mount())
    await node.pod("p", main, metadata=metadata, volumes=volume(downwardAPI={"items": items}))
    assert await node.output("p") == 'a="1"\nb="2"\np\ntwo\n"lines"\n400\ndeep\nlabels\nnote\n'


async def test_files_have_resources_of_a_container(node: NodeNamespace) -> None:
    def item(path: str, resource: str, divisor: str) -> dict[str, Any]:
        reference = {"containerName": "main", "resource": resource, "divisor": divisor}
        return {"path": path, "resourceFieldRef": reference}

    items = [item("cpu", "limits.cpu", "1m"), item("memory", "requests.memory", "1Mi"), item("up", "limits.cpu", "1")]
    resources = {"limits": {"cpu": "1500m", "memory": "64Mi"}, "requests": {"cpu": "10m", "memory": "16Mi"}}
    main = container("cat /v/cpu /v/memory /v/up", volumeMounts=mount(), resources=resources)
    await node.pod("p", main, volumes=volume(downwardAPI={"items": items}))
    assert await node.output("p") == "1500162"


async def test_a_projected_volume_joins_its_sources(node: NodeNamespace) -> None:
    await node.config_map("c", key="config")
    await node.secret("s", key="secret")
    sources = [
        {"configMap": {"name": "c", "items": [{"key": "key", "path": "from/config"}]}},
        {"secret": {"name": "s", "items": [{"key": "key", "path": "from/secret", "mode": 0o400}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        {"configMap": {"name": "absent", "optional": True}},
    ]
    script = "cd /v; cat from/config from/secret namespace; echo; stat -L -c %a from/config from/secret; ls"
    main = container(script, volumeMounts=mount())
    await node.pod("p", main, volumes=volume(projected={"sources": sources, "defaultMode": 0o440}))
    assert await node.output("p") == f"configsecret{node.name}\n440\n400\nfrom\nnamespace\n"


async def test_files_are_links_that_an_update_replaces_at_once(node: NodeNamespace) -> None:
    await node.config_map("c", key="x")
    script = "readlink /v/key; readlink /v/..data | cut -c 1-4"
    await node.pod("p", container(script, volumeMounts=mount()), volumes=volume(configMap={"name": "c"}))
    assert await node.output("p") == "..data/key\n..20\n"


async def test_a_config_map_file_follows_its_object(node: NodeNamespace) -> None:
    await node.config_map("c", key="one")
    await node.pod("p", container(follow("/v/key"), volumeMounts=mount()), volumes=volume(configMap={"name": "c"}))
    await node.until_log("p", "[one]")
    await node.client.patch(CONFIG_MAPS, "c", {"data": {"key": "two"}}, namespace=node.name)
    assert await node.until_log("p", "[two]") == "[one]\n[two]\n"


async def test_labels_in_files_follow_the_pod(node: NodeNamespace) -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    main = container(follow("/v/labels"), volumeMounts=mount())
    await node.pod("p", main, metadata={"labels": {"a": "1"}}, volumes=volume(downwardAPI={"items": items}))
    await node.until_log("p", '[a="1"]')
    await node.client.patch(PODS, "p", {"metadata": {"labels": {"a": "2"}}}, namespace=node.name)
    await node.until_log("p", '[a="2"]')


def account_volume(**token: Any) -> list[dict[str, Any]]:
    """As ServiceAccount admission writes it."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    ca = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}], "optional": True}
    sources = [
        {"serviceAccountToken": {"path": "token", **token}},
        {"configMap": ca},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return volume(projected={"sources": sources})


@pytest.mark.only("overlay", "kubelet")
async def test_a_program_uses_the_api_with_the_rights_of_its_service_account(node: NodeNamespace) -> None:
    await node.make(SERVICE_ACCOUNTS, "reader")
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await node.make(ROLES, "reader", rules=[rule])
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": node.name}
    await node.make(ROLE_BINDINGS, "reader", roleRef=reference, subjects=[subject])
    await node.pod(
        "p",
        python(LIST_PODS, volumeMounts=mount(ACCOUNT)),
        serviceAccountName="reader",
        automountServiceAccountToken=False,
        volumes=account_volume(),
    )
    assert json.loads(await node.output("p")) == [["p"], 403]


async def test_a_token_names_its_pod_and_its_audience(node: NodeNamespace) -> None:
    program = """
import base64, json
part = open("/v/token").read().split(".")[1]
claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
print(json.dumps([claims["aud"], claims["exp"] - claims["iat"], claims["kubernetes.io"]["pod"]["name"], claims["sub"]]))
"""
    volumes = account_volume(audience="vault", expirationSeconds=1200)
    main = {**python(program), "volumeMounts": mount()}
    if node.level == "plain":
        main["command"] = ["python3", "-c", program.replace("/v/token", "$(TOKEN)")]
        main["env"] = [{"name": "TOKEN", "value": "/v/token"}]
    await node.pod("p", main, volumes=volumes)
    subject = f"system:serviceaccount:{node.name}:default"
    assert json.loads(await node.output("p")) == [["vault"], 1200, "p", subject]


@pytest.mark.only("overlay", "kubelet")
async def test_a_link_out_of_a_volume_is_no_sub_path(node: NodeNamespace) -> None:
    link = container("ln -s /etc /v/link", volumeMounts=mount(), name="link")
    main = container("ls /v", volumeMounts=mount(subPath="link"))
    await node.pod("p", main, initContainers=[link], volumes=volume(emptyDir={}))
    await node.until(
        "p",
        lambda pod: (
            "hosts" not in json.dumps(pod.get("status", {}).get("containerStatuses"))
            and any(
                state in {"waiting", "terminated"} and details.get("reason") not in {"PodInitializing", "Completed"}
                for one in pod["status"].get("containerStatuses") or []
                for state, details in one["state"].items()
            )
        ),
    )


async def test_a_program_finds_the_api_server_by_its_environment(node: NodeNamespace) -> None:
    if node.level == "plain":
        return  # programs find the kubeconfig there
    await node.pod("p", container('[ -n "$KUBERNETES_SERVICE_HOST" ] && [ -n "$KUBERNETES_SERVICE_PORT" ]'))
    assert terminated(await node.until_phase("p", "Succeeded"))["exitCode"] == 0
