"""Manifests of small jobs whose programs are shell scripts: they start quickly and need no torch."""

from pathlib import Path
from typing import Any

import yaml

from trainwright.api.kinds import PYTORCH, Kind
from trainwright.objects import Object
from trainwright.objects.node_annotations import HOST_IMAGE


def shell_job(
    name: str,
    master: str,
    worker: str | None = None,
    *,
    workers: int = 2,
    policy: str = "Never",
    **spec: Any,
) -> Object:
    """A PyTorchJob that runs `master` in its master and `worker` in its workers, both by `sh -c`."""
    scripts = {"Master": (1, master)}
    if worker is not None:
        scripts["Worker"] = (workers, worker)
    return shell_job_of(PYTORCH, name, scripts, policy=policy, **spec)


def shell_job_of(
    kind: Kind, name: str, scripts: dict[str, tuple[int, str]], *, policy: str = "Never", **spec: Any
) -> Object:
    """A job of any kind; `scripts` has the number of replicas and the script of each role."""
    roles = {role: _replica(kind, count, script, policy) for role, (count, script) in scripts.items()}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": {"name": name},
        "spec": {**spec, kind.replicas_field: roles},
    }


def write_manifest(directory: Path, *objects: Object, name: str = "job.yaml") -> str:
    """The path of a file with these objects."""
    path = directory / name
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def _replica(kind: Kind, replicas: int, script: str, policy: str) -> Object:
    container = {"name": kind.container or "main", "image": HOST_IMAGE, "command": ["sh", "-c", script]}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}
