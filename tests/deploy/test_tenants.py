"""Users with the roles admin, edit and view of Kubernetes: what they may do with jobs, not with the operator.

The real aggregation controller adds the chart's rules to the roles.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.helm import CHART, Helm
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS
from trainwright.kube.client.kubeconfig import merge_into_kubeconfig

pytestmark = pytest.mark.apiserver

OPERATORS = "operators-of-tenants"


@pytest.fixture(scope="module")
def kubectl(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubectl]:
    """For the administrator of a cluster on which the chart is installed."""
    helm = Helm(tmp_path_factory.mktemp("helm"), control_plane.kubeconfig)
    # Without webhooks, because no operator runs here.
    settings = f"namespace.name={OPERATORS},crds.enabled=false,webhook.enabled=false"
    helm("install", "tenants", CHART, "--set", settings)
    yield RealKubectl(control_plane)
    helm("uninstall", "tenants")
    RealKubectl(control_plane)("delete", "namespace", OPERATORS, "--wait=false")


async def user(plane: ControlPlane, kubectl: RealKubectl, role: str, namespace: str, directory: Path) -> RealKubectl:
    """kubectl of a service account that has the role in this namespace."""
    account = f"{namespace}:{role}"
    kubectl("-n", namespace, "create", "serviceaccount", role)
    kubectl("-n", namespace, "create", "rolebinding", role, f"--clusterrole={role}", f"--serviceaccount={account}")
    token = kubectl("-n", namespace, "create", "token", role).strip()
    kubeconfig = directory / role
    assert plane.config.ca_data
    merge_into_kubeconfig(
        kubeconfig, name="tenant", server=plane.config.server, ca_data=plane.config.ca_data, token=token
    )
    tenant = RealKubectl(plane, kubeconfig)

    async def may_read() -> bool:
        return may(tenant, namespace, "list", "pytorchjobs.kubeflow.org")

    await eventually(may_read, bool)  # the controller has aggregated the rules
    return tenant


def may(tenant: RealKubectl, namespace: str, *what: str) -> bool:
    return tenant.run("-n", namespace, "auth", "can-i", *what).stdout.strip() == "yes"


async def test_edit_runs_jobs_and_cannot_touch_the_operator(
    control_plane: ControlPlane, kubectl: RealKubectl, real_namespace: str, tmp_path: Path
) -> None:
    tenant = await user(control_plane, kubectl, "edit", real_namespace, tmp_path)
    here = ("-n", real_namespace)

    for kind in KINDS.values():
        job = JobBuilder("job", kind=kind, namespace=real_namespace)
        for role in kind.roles[:2]:
            job = job.replica(role.name)
        tenant(*here, "create", "-f", "-", stdin=json.dumps(job.manifest()))
        tenant(*here, "patch", kind.plural, "job", "--type=merge", "-p", '{"spec": {"runPolicy": {"suspend": true}}}')
        if kind.scaled_role is not None:
            tenant(*here, "scale", kind.plural, "job", "--replicas=3")
            scaled = tenant.get(*here, kind.plural, "job")["spec"][kind.replicas_field][kind.scaled_role]
            assert scaled["replicas"] == 3
        assert [one["metadata"]["name"] for one in tenant.items(*here, kind.plural)] == ["job"]
        tenant(*here, "delete", kind.plural, "job")
    assert may(tenant, real_namespace, "get", "pods", "--subresource=log")
    assert may(tenant, real_namespace, "list", "events")

    assert not may(tenant, real_namespace, "update", "pytorchjobs.kubeflow.org", "--subresource=status")
    assert "Forbidden" in tenant.refusal("-n", OPERATORS, "scale", "deployment", "tenants-trainwright", "--replicas=0")
    assert "Forbidden" in tenant.refusal("delete", "crd", "pytorchjobs.kubeflow.org")
    for verb, resource in (
        ("get", "deployments"),
        ("patch", "deployments"),
        ("get", "secrets"),
        ("create", "pods"),
        ("update", "leases.coordination.k8s.io"),
        ("update", "rolebindings.rbac.authorization.k8s.io"),
        ("create", "serviceaccounts/token"),
        ("list", "pytorchjobs.kubeflow.org"),
    ):
        assert not may(tenant, OPERATORS, verb, resource), (verb, resource)
    for resource in ("validatingwebhookconfigurations", "clusterroles", "clusterrolebindings", "namespaces"):
        assert not may(tenant, real_namespace, "update", resource), resource


async def test_view_only_reads(
    control_plane: ControlPlane, kubectl: RealKubectl, real_namespace: str, tmp_path: Path
) -> None:
    tenant = await user(control_plane, kubectl, "view", real_namespace, tmp_path)
    job = json.dumps(JobBuilder("job", namespace=real_namespace).master().manifest())
    kubectl("create", "-f", "-", stdin=job)

    assert tenant.get("-n", real_namespace, "pytorchjob", "job")["kind"] == "PyTorchJob"
    assert may(tenant, real_namespace, "get", "pods", "--subresource=log")
    for verb in ("create", "patch", "delete"):
        assert not may(tenant, real_namespace, verb, "pytorchjobs.kubeflow.org")
    assert not may(tenant, real_namespace, "patch", "pytorchjobs.kubeflow.org", "--subresource=scale")


async def test_admin_has_all_permissions_for_jobs(
    control_plane: ControlPlane, kubectl: RealKubectl, real_namespace: str, tmp_path: Path
) -> None:
    tenant = await user(control_plane, kubectl, "admin", real_namespace, tmp_path)
    assert may(tenant, real_namespace, "*", "tfjobs.kubeflow.org")
    assert not may(tenant, OPERATORS, "get", "deployments")
