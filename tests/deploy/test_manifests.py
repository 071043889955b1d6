"""The kustomize manifests are the chart with the corresponding values."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.commands.helm import OVERLAYS, ROOT, Helm, Key, by_key, without_helm
from trainwright.objects import Object
from trainwright.objects.yaml_documents import Loader

KUBEFLOW = ["--values", OVERLAYS / "kubeflow" / "values.yaml"]


@pytest.mark.parametrize(("overlay", "flags"), [("standalone", []), ("kubeflow", KUBEFLOW)])
def test_an_overlay_is_the_chart_with_its_values(
    helm: Helm, kubectl_binary: Path, overlay: str, flags: list[str | Path]
) -> None:
    assert kustomize(kubectl_binary, OVERLAYS / overlay) == without_helm(helm.render(*flags))


def test_a_kustomization_can_move_the_base_to_another_namespace(
    helm: Helm, kubectl_binary: Path, tmp_path: Path
) -> None:
    base = Path(*[".."] * (len(tmp_path.parts) - 1)) / OVERLAYS.parent.relative_to("/") / "base"
    (tmp_path / "kustomization.yaml").write_text(f"namespace: elsewhere\nresources: [{base}]\n")

    moved = kustomize(kubectl_binary, tmp_path)

    assert moved == without_helm(helm.render("--set", "namespace.create=false,namespace.name=elsewhere"))


def test_a_kustomization_can_set_the_image(kubectl_binary: Path, tmp_path: Path) -> None:
    """As docs/how-to/install.md shows it."""
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "trainwright").mkdir()
    shutil.copytree(ROOT / "deploy", tmp_path / "trainwright" / "deploy")
    (tmp_path / "kustomization.yaml").write_text(block)

    deployment = kustomize(kubectl_binary, tmp_path)["Deployment", "trainwright", "trainwright"]

    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.com/trainwright:")


def kustomize(kubectl: Path, directory: Path) -> dict[Key, Object]:
    text = subprocess.run([kubectl, "kustomize", directory], capture_output=True, text=True, check=True).stdout
    return by_key(yaml.load_all(text, Loader=Loader))
