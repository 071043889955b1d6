"""The real Helm with the project's chart. The program comes from `make kubernetes`."""

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import yaml

from trainwright.objects import Object
from trainwright.objects.yaml_documents import Loader

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "charts" / "trainwright"
OVERLAYS = ROOT / "deploy" / "manifests" / "overlays"

_SECONDS = 180
_OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/", "meta.helm.sh/")

VARIANTS: dict[str, Object] = {
    "defaults": {},
    "one namespace": {"scope": {"namespace": "default"}},
    "all options": {
        "replicas": 2,
        "leaderElection": {"enabled": True},
        "podDisruptionBudget": {"enabled": True},
        "pytorch": {"initContainer": {"template": "- name: init\n  image: busybox\n"}},
        "gangScheduler": {"name": "volcano"},
        "operator": {"installCrds": True},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "hostNetwork": True,
    },
}
"""Values that together render every template, except that of a ServiceMonitor, which has a CRD of its own."""

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


class Helm:
    """Helm for the cluster of a kubeconfig, or for none."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        self._program = helm_binary()
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig or home / "no-kubeconfig"),
        }

    def run(self, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        command = [str(self._program), *map(str, arguments)]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=_SECONDS, check=False)

    def __call__(self, *arguments: str | Path) -> str:
        """What the command prints; a failure fails the test."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"helm {arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def refusal(self, *arguments: str | Path) -> str:
        """The error of a command that must fail."""
        done = self.run(*arguments)
        assert done.returncode != 0, f"helm {arguments} succeeded:\n{done.stdout}"
        return done.stderr

    def render(self, *flags: str | Path, release: str = "trainwright") -> dict[Key, Object]:
        return by_key(yaml.load_all(self("template", release, CHART, *flags), Loader=Loader))


def helm_binary() -> Path:
    """The Helm that `make kubernetes` builds."""
    if given := os.environ.get("TRAINWRIGHT_HELM"):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright" / "helm"
    pinned = re.search(r"helm.sh/helm/v3 (v\S+)", (ROOT / "tools" / "helm" / "go.mod").read_text())
    assert pinned
    built = sorted(cache.glob(f"{pinned[1]}-*/helm"), key=lambda program: program.stat().st_mtime)
    if not built:
        raise RuntimeError(f"no Helm {pinned[1]} below {cache}: run `make kubernetes`, or set TRAINWRIGHT_HELM")
    return built[-1]


def by_key(objects: Iterable[Object | None]) -> dict[Key, Object]:
    return {key_of(one): one for one in objects if one}


def key_of(obj: Object) -> Key:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def without_helm(objects: dict[Key, Object]) -> dict[Key, Object]:
    """The objects without Helm's own labels and annotations."""
    return {key: {**one, "metadata": _metadata_without_helm(one["metadata"])} for key, one in objects.items()}


def _metadata_without_helm(metadata: Object) -> Object:
    kept = dict(metadata)
    for field in ("labels", "annotations"):
        chosen = {key: text for key, text in (kept.pop(field, None) or {}).items() if not key.startswith(_OF_HELM)}
        kept |= {field: chosen} if chosen else {}
    return kept
