"""Manifests of small jobs whose programs are shell scripts: they start quickly and need no torch."""

from pathlib import Path
from typing import Any

import yaml

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
    roles = {"Master": _replica(1, master, policy)}
    if worker is not None:
        roles["Worker"] = _replica(workers, worker, policy)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {**spec, "pytorchReplicaSpecs": roles},
    }


def write_manifest(directory: Path, *objects: Object, name: str = "job.yaml") -> str:
    """The path of a file with these objects."""
    path = directory / name
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def _replica(replicas: int, script: str, policy: str) -> Object:
    container = {"name": "pytorch", "image": HOST_IMAGE, "command": ["sh", "-c", script]}
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}
