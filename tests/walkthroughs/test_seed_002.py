"""The README of a Helm chart for pytorch-operator: its four documented values and its example, with this chart."""

import json
from pathlib import Path

import pytest

from tests.support.commands.helm import CHART, Helm
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.kubernetes.chart_installation import installation_in
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.waiting import eventually
from trainwright.objects import Object

pytestmark = pytest.mark.apiserver

VALUES = ("image.repository", "image.tag", "namespace.create", "namespace.name")

# As in the README, with an image in place of <训练镜像>.
JOB = """\
apiVersion: "kubeflow.org/v1"
kind: "PyTorchJob"
metadata:
  name: "pytorch-dist-mnist-nccl"
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata:
          annotations:
            sidecar.istio.io/inject: "false"
        spec:
          containers:
            - name: pytorch
              image: registry.example.com/mnist:1.0
              args: ["--backend", "nccl"]
              resources:
                limits:
                  nvidia.com/gpu: 1
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata:
          annotations:
            sidecar.istio.io/inject: "false"
        spec:
          containers:
            - name: pytorch
              image: registry.example.com/mnist:1.0
              args: ["--backend", "nccl"]
              resources:
                limits:
                  nvidia.com/gpu: 1
"""


def test_the_readme_of_the_chart_documents_the_four_values() -> None:
    readme = (CHART / "README.md").read_text()
    assert [value for value in VALUES if f"| `{value}` |" in readme] == list(VALUES)


def test_image_and_namespace_are_seen_in_the_objects(control_plane: ControlPlane, tmp_path: Path) -> None:
    helm, kubectl = Helm(tmp_path, control_plane.kubeconfig), RealKubectl(control_plane)
    release, namespace = "seed-002", "pytorch-operator"
    image = "registry.example.com/tke/pytorch-operator"
    chart = (
        *(CHART, "--set", f"image.repository={image},image.tag=latest,namespace.name={namespace}"),
        *("--set", "crds.enabled=false,webhook.enabled=false"),
    )

    helm("install", release, *chart, "--set", "namespace.create=true")
    try:
        assert kubectl.get("namespace", namespace)["metadata"]["labels"]["app.kubernetes.io/instance"] == release
        (deployment,) = kubectl.items("-n", namespace, "deployments")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"{image}:latest"
        helm("uninstall", release)
        assert kubectl.get("namespace", namespace)["status"]["phase"] == "Active"

        # The namespace exists now: create=false installs into it, wherever the release itself is recorded.
        helm("install", release, *chart, "--namespace", "kube-public", "--set", "namespace.create=false")
        assert len(kubectl.items("-n", namespace, "deployments")) == 1
        helm("uninstall", release, "--namespace", "kube-public")
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


async def test_the_example_is_accepted_and_gets_its_pods(
    control_plane: ControlPlane, real_namespace: str, tmp_path: Path
) -> None:
    manifest = tmp_path / "pytorch_job_mnist_nccl.yaml"
    manifest.write_text(JOB)
    with installation_in(control_plane, real_namespace, tmp_path) as installation:
        installation.values["scope"] = {"namespace": real_namespace}
        installation.install()
        async with installation.ready():
            kubectl = installation.kubectl
            created = kubectl("-n", real_namespace, "create", "-f", manifest)
            assert created == "pytorchjob.kubeflow.org/pytorch-dist-mnist-nccl created\n"

            async def pods() -> list[Object]:
                return kubectl.items("-n", real_namespace, "pods", "-l", "training.kubeflow.org/job-name")

            seen = await eventually(pods, lambda found: len(found) == 2)
            assert {one["metadata"]["name"] for one in seen} == {
                "pytorch-dist-mnist-nccl-master-0",
                "pytorch-dist-mnist-nccl-worker-0",
            }
            for one in seen:
                (container,) = one["spec"]["containers"]
                assert container["args"] == ["--backend", "nccl"]
                assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
                assert one["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
            listed = json.loads(kubectl("-n", real_namespace, "get", "pytorchjobs", "-o", "json"))["items"]
            assert [one["metadata"]["name"] for one in listed] == ["pytorch-dist-mnist-nccl"]
