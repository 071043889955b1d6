"""Installing with the real Helm and kubectl on a real API server: upgrades, removal, and what stands in the way."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands.helm import CHART, OVERLAYS, VARIANTS, Helm, Key, by_key, without_helm
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.go_operator import go_operator_files
from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import KINDS
from trainwright.objects import Object

pytestmark = pytest.mark.apiserver

CRDS = [kind.resource.qualified_plural for kind in KINDS.values()]
INSTALL = ("install", "trainwright", CHART)
CLUSTER_KINDS = "validatingwebhookconfigurations,clusterroles,clusterrolebindings"
NAMESPACED_KINDS = "deployments,services,roles,rolebindings,serviceaccounts,secrets"
OURS = ("-l", "app.kubernetes.io/name=trainwright")


def test_install_upgrade_rollback_and_uninstall(bare_helm: Helm, bare_kubectl: RealKubectl) -> None:
    """One story, because installing CRDs takes seconds."""
    helm, kubectl = bare_helm, bare_kubectl
    error = helm.refusal(*INSTALL, "--set", "crds.enabled=false")
    assert "crds.enabled is false, and the cluster has no pytorchjobs.kubeflow.org" in error
    assert "trainwright crds | kubectl apply" in error
    error = helm.refusal(*INSTALL, "--set", "gangScheduler.name=volcano")
    assert "the cluster serves no PodGroup of scheduling.volcano.sh/v1beta1" in error

    notes = helm(*INSTALL)
    assert "kubectl -n trainwright rollout status deployment/trainwright" in notes
    assert "kubectl apply -f JOB.yaml" in notes
    assert "kubectl -n trainwright logs deployment/trainwright" in notes
    installed = live(kubectl)
    assert installed.keys() == rendered_keys(helm)
    kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in CRDS))

    # What the operator writes survives upgrades.
    write_certificates(kubectl)
    helm("upgrade", "trainwright", CHART, "--set", "replicas=2,leaderElection.enabled=true,image.tag=next")
    upgraded = deployment(kubectl)["spec"]
    assert (upgraded["replicas"], upgraded["strategy"]["type"]) == (2, "RollingUpdate")
    assert upgraded["template"]["spec"]["containers"][0]["image"] == "trainwright:next"
    assert certificates(kubectl) == ("c2VjcmV0", ["Q0E="] * len(KINDS))

    helm("rollback", "trainwright", "1")
    restored = deployment(kubectl)["spec"]
    assert (restored["replicas"], restored["strategy"]) == (1, {"type": "Recreate"})
    assert certificates(kubectl) == ("c2VjcmV0", ["Q0E="] * len(KINDS))

    # Without an operator the webhooks would refuse the job.
    helm("upgrade", "trainwright", CHART, "--set", "webhook.enabled=false")
    job = JobBuilder("job", namespace="default").master()
    kubectl("create", "-f", "-", stdin=json.dumps(job.manifest()))
    uid = kubectl.get("pytorchjob", "job")["metadata"]["uid"]
    helm("uninstall", "trainwright")
    assert live(kubectl).keys() == {key for key in installed if key[0] in {"CustomResourceDefinition", "Namespace"}}
    assert kubectl.get("pytorchjob", "job")["metadata"]["uid"] == uid

    # The same release takes over again what it has left.
    helm(*INSTALL, "--set", "webhook.enabled=false")
    assert kubectl.get("pytorchjob", "job")["metadata"]["uid"] == uid
    helm("uninstall", "trainwright")

    kubectl("apply", "--server-side", "-k", OVERLAYS / "standalone")
    assert without_helm(live(kubectl)) == without_helm(installed)
    write_certificates(kubectl)
    kubectl("apply", "--server-side", "-k", OVERLAYS / "standalone")
    assert certificates(kubectl) == ("c2VjcmV0", ["Q0E="] * len(KINDS))
    kubectl("delete", CLUSTER_KINDS, *OURS)
    kubectl("-n", "trainwright", "delete", NAMESPACED_KINDS, *OURS)
    assert {kind for kind, _, _ in live(kubectl)} == {"CustomResourceDefinition", "Namespace"}
    assert kubectl.get("pytorchjob", "job")["metadata"]["uid"] == uid
    kubectl("delete", "pytorchjob", "job")


def test_foreign_crds_and_namespaces_stop_the_installation_with_advice(helm_of_shared: Helm) -> None:
    """The shared control plane has CRDs that Helm did not install."""
    helm = helm_of_shared
    error = helm.refusal(*INSTALL)
    assert "exist already and do not belong to this release: pytorchjobs.kubeflow.org" in error
    assert "set crds.enabled=false" in error
    assert "meta.helm.sh/release-name=trainwright meta.helm.sh/release-namespace=default" in error

    off = ("--set", "crds.enabled=false", "--dry-run=server")
    error = helm.refusal(*INSTALL, *off, "--set", "namespace.name=kube-public")
    assert "The namespace kube-public exists already" in error
    assert "set namespace.create=false" in error
    error = helm.refusal(*INSTALL, *off, "--set", "namespace.create=false,namespace.name=absent")
    assert "There is no namespace absent" in error
    error = helm.refusal(*INSTALL, *off, "--set", "scope.namespace=absent")
    assert "There is no namespace absent, which scope.namespace names" in error
    helm(*INSTALL, *off, "--set", "namespace.name=kube-public,namespace.create=false")
    helm(*INSTALL, *off, "--namespace", "default", "--set", "namespace.name=default")
    created = ("--namespace", "fresh", "--create-namespace", "--set", "namespace.name=fresh")
    assert "exist already and do not belong to this release" in helm.refusal(*INSTALL, *created)
    helm(*INSTALL, *off, *created)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_api_server_accepts_the_rendered_objects(
    helm: Helm, shared_kubectl: RealKubectl, tmp_path: Path, variant: str
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({**VARIANTS[variant], "namespace": {"create": False, "name": "default"}}))
    objects = helm.render("--values", values)

    printed = shared_kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects.values())}),
    )

    assert len(printed.splitlines()) == len(objects)


def test_pods_satisfy_the_restricted_policy(helm: Helm, shared_kubectl: RealKubectl, real_namespace: str) -> None:
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    shared_kubectl("label", "namespace", real_namespace, enforce)
    (rendered,) = (one for (kind, _, _), one in helm.render().items() if kind == "Deployment")
    template = rendered["spec"]["template"]
    template["spec"]["serviceAccountName"] = "default"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}, "spec": template["spec"]}
    shared_kubectl("-n", real_namespace, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))

    template["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    error = shared_kubectl.refusal("-n", real_namespace, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    assert "violates PodSecurity" in error


def test_the_kubeflow_overlay_takes_the_place_of_training_operator_and_gives_it_back(
    bare_helm: Helm, bare_kubectl: RealKubectl
) -> None:
    helm, kubectl = bare_helm, bare_kubectl
    apply = ("apply", "--server-side", "--force-conflicts")
    upstream = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(upstream_objects())})
    kubectl(*apply, "-f", "-", stdin=upstream)
    kubectl(*apply, "-f", go_operator_files().crds / "kubeflow.org_pytorchjobs.yaml")
    written = json.dumps({"data": {"tls.crt": "dXBzdHJlYW0="}})
    kubectl("-n", "kubeflow", "patch", "secret", "training-operator-webhook-cert", "-p", written)
    before = kubectl.get("-n", "kubeflow", "deployment", "training-operator")

    kubectl(*apply, "-k", OVERLAYS / "kubeflow")

    after = kubectl.get("-n", "kubeflow", "deployment", "training-operator")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert [one["command"] for one in after["spec"]["template"]["spec"]["containers"]] == [["trainwright", "operator"]]
    assert "volumes" not in after["spec"]["template"]["spec"]
    rendered = helm.render("--values", OVERLAYS / "kubeflow" / "values.yaml")
    for key, one in without_helm(rendered).items():
        assert_contains(kubectl.get(*named(key)), one)
    certificate = kubectl.get("-n", "kubeflow", "secret", "training-operator-webhook-cert")["data"]
    assert certificate == {"tls.crt": "dXBzdHJlYW0="}

    kubectl(*apply, "-f", "-", stdin=upstream)
    back = kubectl.get("-n", "kubeflow", "deployment", "training-operator")
    assert back["spec"]["strategy"] == before["spec"]["strategy"]
    assert [one["command"] for one in back["spec"]["template"]["spec"]["containers"]] == [["/manager"]]

    # The chart, too, takes over CRDs of others if the administrator says so.
    kubectl(*apply, "-f", go_operator_files().crds / "kubeflow.org_pytorchjobs.yaml")
    error = helm.refusal(*INSTALL)
    for command in re.findall(r"^  kubectl (.*)$", error, re.MULTILINE):
        kubectl(*command.split())
    helm(*INSTALL)
    assert_contains(
        kubectl.get("crd", "pytorchjobs.kubeflow.org"),
        rendered["CustomResourceDefinition", "", "pytorchjobs.kubeflow.org"],
    )


@pytest.fixture
def helm_of_shared(control_plane: ControlPlane, tmp_path: Path) -> Helm:
    return Helm(tmp_path, control_plane.kubeconfig)


@pytest.fixture
def shared_kubectl(control_plane: ControlPlane) -> RealKubectl:
    return RealKubectl(control_plane)


def live(kubectl: RealKubectl) -> dict[Key, Object]:
    """The installed objects, without what differs between any two installations."""
    labelled = kubectl.items(f"{CLUSTER_KINDS},crds,namespaces,{NAMESPACED_KINDS}", "--all-namespaces", *OURS)
    return by_key(map(stable, labelled))


def stable(obj: Object) -> Object:
    metadata = {
        key: obj["metadata"][key] for key in ("name", "namespace", "labels", "annotations") if key in obj["metadata"]
    }
    metadata["annotations"] = {
        key: text
        for key, text in metadata.get("annotations", {}).items()
        if not key.startswith("deployment.kubernetes")
    }
    kept = {key: value for key, value in obj.items() if key not in {"status", "metadata"}}
    if obj["kind"] == "Service":
        kept["spec"] = {key: value for key, value in obj["spec"].items() if not key.startswith("clusterIP")}
    return {**kept, "metadata": metadata}


def rendered_keys(helm: Helm) -> set[Key]:
    return set(helm.render())


def deployment(kubectl: RealKubectl) -> Object:
    found: Object = kubectl.get("-n", "trainwright", "deployment", "trainwright")
    return found


def write_certificates(kubectl: RealKubectl) -> None:
    """Writes what the operator writes at start."""
    secret = {"data": {"tls.key": "c2VjcmV0"}}
    kubectl("-n", "trainwright", "patch", "secret", "trainwright-webhook-cert", "-p", json.dumps(secret))
    bundles = [
        {"op": "add", "path": f"/webhooks/{n}/clientConfig/caBundle", "value": "Q0E="} for n in range(len(KINDS))
    ]
    kubectl("patch", "validatingwebhookconfiguration", "trainwright", "--type=json", "-p", json.dumps(bundles))


def certificates(kubectl: RealKubectl) -> tuple[str, list[str]]:
    secret = kubectl.get("-n", "trainwright", "secret", "trainwright-webhook-cert")
    webhooks = kubectl.get("validatingwebhookconfiguration", "trainwright")["webhooks"]
    return secret["data"]["tls.key"], [one["clientConfig"].get("caBundle") for one in webhooks]


def named(key: Key) -> list[str]:
    kind, namespace, name = key
    return [*(["-n", namespace] if namespace else []), kind, name]


def assert_contains(actual: Any, expected: Any, path: str = "") -> None:
    """Every field of the manifest is in the object; the API server adds defaults."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            if value is None:
                assert key not in actual, f"{path}.{key}"
            else:
                assert_contains(actual[key], value, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), path
        for number, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_contains(one, other, f"{path}[{number}]")
    else:
        assert actual == expected, path


def upstream_objects() -> Iterable[Object]:
    """training-operator v1.9.4 as its manifests install it: names, labels, selector and volumes."""
    labels = {"control-plane": "kubeflow-training-operator"}
    name = {"name": "training-operator", "namespace": "kubeflow"}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**name, "labels": {"app": "training-operator"}}}
    secret = {"name": "training-operator-webhook-cert", "namespace": "kubeflow"}
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": secret}
    ports = [
        {"name": "monitoring-port", "port": 8080, "targetPort": 8080},
        {"name": "webhook-server", "port": 443, "targetPort": 9443},
    ]
    yield {"apiVersion": "v1", "kind": "Service", "metadata": name, "spec": {"ports": ports, "selector": labels}}
    container = {
        "name": "training-operator",
        "image": "training-operator:v1",
        "command": ["/manager"],
        "ports": [{"containerPort": 8080}, {"containerPort": 9443, "name": "webhook-server", "protocol": "TCP"}],
        "volumeMounts": [{"mountPath": "/tmp/k8s-webhook-server/serving-certs", "name": "cert", "readOnly": True}],
    }
    volumes = [{"name": "cert", "secret": {"secretName": "training-operator-webhook-cert"}}]
    pod = {"containers": [container], "volumes": volumes, "serviceAccountName": "training-operator"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**name, "labels": labels}, "spec": spec}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "training-operator"}
    rbac = "rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get"]}]
    yield {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "training-operator"}, "rules": rules}
    yield {
        "apiVersion": rbac,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "training-operator"},
        "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", **name}],
    }
    webhooks = yaml.safe_load(go_operator_files().webhooks.read_text())
    webhooks["metadata"]["name"] = "validator.training-operator.kubeflow.org"
    for webhook in webhooks["webhooks"]:
        webhook["clientConfig"]["service"] |= {"name": "training-operator", "namespace": "kubeflow"}
    yield webhooks
