"""`trainwright up` refuses what the operator's webhooks refuse, and kubectl manages access as on any cluster."""

import json

from tests.support.commands.kubectl import Commands
from tests.support.objects.shell_jobs import shell_job

DENIED = 'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the request: '


def test_invalid_jobs_are_refused_and_live_ones_keep_their_manager(commands: Commands) -> None:
    kubectl, refused = commands.kubectl, commands.refused_kubectl
    job = shell_job("live", "sleep 60", "sleep 60")

    foreign = json.loads(json.dumps(job))
    foreign["spec"].setdefault("runPolicy", {})["managedBy"] = "example.com/other"
    assert DENIED in refused("create", "-f", "-", stdin=json.dumps(foreign))
    role = json.loads(json.dumps(job))
    role["spec"]["pytorchReplicaSpecs"]["Boss"] = role["spec"]["pytorchReplicaSpecs"].pop("Master")
    assert DENIED in refused("create", "-f", "-", stdin=json.dumps(role))
    assert kubectl("get", "pytorchjobs") == "No resources found in default namespace.\n"

    kubectl("create", "-f", "-", stdin=json.dumps(job))
    kubectl("wait", "--for=condition=Running", "pytorchjob/live", "--timeout=60s")
    patch = json.dumps({"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}})
    error = refused("patch", "pytorchjob", "live", "--type=merge", "-p", patch)
    assert DENIED in error
    assert "managedBy" in error
    kubectl("annotate", "pytorchjob", "live", "still=managed")
    assert "managedBy" not in commands.get("pytorchjob", "live")["spec"].get("runPolicy", {})


def test_kubectl_manages_users_and_their_permissions(commands: Commands) -> None:
    kubectl, refused = commands.kubectl, commands.refused_kubectl

    assert "kubernetes-admin" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "delete", "secrets") == "yes\n"
    kubectl("create", "serviceaccount", "robot")
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods")
    kubectl("create", "rolebinding", "reads", "--role=reader", "--serviceaccount=default:robot", "--user=ann")
    token = kubectl("create", "token", "robot", "--duration=1h").strip()

    assert "system:serviceaccount:default:robot" in kubectl("--token", token, "auth", "whoami")
    assert kubectl("--token", token, "get", "pods") == "No resources found in default namespace.\n"
    assert refused("--token", token, "get", "secrets") == (
        'Error from server (Forbidden): secrets is forbidden: User "system:serviceaccount:default:robot" cannot list '
        'resource "secrets" in API group "" in the namespace "default"\n'
    )
    assert kubectl("get", "pods", "--as=ann") == "No resources found in default namespace.\n"
    assert refused("auth", "can-i", "create", "pods", "--as=ann") == ""
    listed = kubectl("auth", "can-i", "--list", "--as=ann")
    assert ["pods", "[]", "[]", "[get", "list]"] in [line.split() for line in listed.splitlines()]
    kubectl("create", "clusterrolebinding", "editors", "--clusterrole=edit", "--user=bob")
    assert "yes\n" in kubectl("auth", "can-i", "create", "secrets", "--as=bob")


def test_token_in_a_secret_ends_with_its_account(commands: Commands) -> None:
    kubectl, refused = commands.kubectl, commands.refused_kubectl
    kubectl("create", "serviceaccount", "robot")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(secret))
    assert "Type:  kubernetes.io/service-account-token" in kubectl("describe", "secret", "robot-token")
    token = kubectl("get", "secret", "robot-token", "-o", "go-template={{.data.token | base64decode}}")
    assert "system:serviceaccount:default:robot" in kubectl("--token", token, "auth", "whoami")

    kubectl("delete", "serviceaccount", "robot")
    kubectl("wait", "--for=delete", "secret/robot-token", "--timeout=60s")
    assert "You must be logged in to the server" in refused("--token", token, "get", "pods")


ASK_THE_API = """
import os, ssl, urllib.error, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount/"
token, namespace = (open(account + name).read() for name in ("token", "namespace"))
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
request = urllib.request.Request(f"https://{host}:{port}/api/v1/namespaces/{namespace}/pods")
request.add_header("Authorization", f"Bearer {token}")
try:
    print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=account + "ca.crt")).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


def test_pod_reaches_the_api_as_its_account(commands: Commands) -> None:
    kubectl = commands.kubectl
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "command": ["python3", "-c", ASK_THE_API]}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/asks", "--timeout=60s")
    answer = kubectl("logs", "asks")
    assert answer.startswith("403 ")
    assert 'User \\"system:serviceaccount:default:default\\" cannot list resource \\"pods\\"' in answer

    kubectl("create", "rolebinding", "all-view", "--clusterrole=view", "--serviceaccount=default:default")
    pod["metadata"] = {"name": "asks-again"}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/asks-again", "--timeout=60s")
    assert kubectl("logs", "asks-again") == "200\n"
