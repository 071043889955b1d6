"""Writes the kustomize manifests: what Helm renders from the chart, one file per template, without Helm's own labels.

A test fails if a written file is stale. With --check nothing is written, and stale files are named. Helm comes from
tools/build-helm.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "charts" / "trainwright"
MANIFESTS = ROOT / "deploy" / "manifests"
BASE = MANIFESTS / "base"
STANDALONE, KUBEFLOW = MANIFESTS / "overlays" / "standalone", MANIFESTS / "overlays" / "kubeflow"
MADE_BY = "# made by tools/chart/manifests.py\n"
_SOURCE = re.compile(r"^# Source: trainwright/templates/(\S+)\n", re.MULTILINE)


def files() -> dict[Path, str]:
    """The content of each file that is made here."""
    standalone, kubeflow = render(), render(KUBEFLOW / "values.yaml")
    assert standalone["crds.yaml"] == kubeflow.pop("crds.yaml"), "the overlays share the CRDs"
    crds = {f"{one['metadata']['name']}.yaml": [one] for one in standalone.pop("crds.yaml")}
    return {
        **_directory(BASE / "crds", crds),
        STANDALONE / "namespace.yaml": _text(standalone.pop("namespace.yaml")),
        **_directory(BASE, standalone, "crds"),
        **_directory(KUBEFLOW, kubeflow, "../../base/crds"),
    }


def render(*values: Path) -> dict[str, list[dict[str, Any]]]:
    """The objects of each template, without Helm's own labels and annotations."""
    helm = subprocess.run([ROOT / "tools" / "build-helm"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    flags = [word for path in values for word in ("--values", str(path))]
    command = [helm, "template", "trainwright", str(CHART), *flags]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    rendered: dict[str, list[dict[str, Any]]] = {}
    for document in re.split(r"^---$", text, flags=re.MULTILINE):
        if (source := _SOURCE.search(document)) and (obj := yaml.safe_load(document)):
            rendered.setdefault(source[1], []).append(without_helm(obj))
    return rendered


def without_helm(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(obj["metadata"])
    for field in ("labels", "annotations"):
        kept = {key: value for key, value in (metadata.pop(field, None) or {}).items() if not _is_of_helm(key)}
        metadata |= {field: kept} if kept else {}
    return {**obj, "metadata": metadata}


def _is_of_helm(key: str) -> bool:
    return key == "app.kubernetes.io/managed-by" or key.split("/", maxsplit=1)[0] in {"helm.sh", "meta.helm.sh"}


def _directory(path: Path, rendered: dict[str, list[dict[str, Any]]], *others: str) -> dict[Path, str]:
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*others, *sorted(rendered)],
    }
    made = {path / name: _text(objects) for name, objects in rendered.items()}
    return {path / "kustomization.yaml": _text([kustomization]), **made}


def _text(objects: list[dict[str, Any]]) -> str:
    return MADE_BY + yaml.safe_dump_all(objects, sort_keys=False, width=200, allow_unicode=True)


def main() -> None:
    made = files()
    by_hand = {STANDALONE / "kustomization.yaml", KUBEFLOW / "values.yaml"}
    surplus = [path for path in MANIFESTS.rglob("*.yaml") if path not in made and path not in by_hand]
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        if stale or surplus:
            names = ", ".join(str(path.relative_to(ROOT)) for path in (*stale, *surplus))
            sys.exit(f"stale: {names}; run .venv/bin/python tools/chart/manifests.py")
        return
    for path in surplus:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
