"""Applies validated objects: first the objects that jobs need, then the jobs.

`plan_job` decides, without I/O, what to do about a job that already exists.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.validation import ValidObject
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.requests import PatchKind
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.node_annotations import DIRECTORY, PYTHON
from trainwright.objects.paths import value_at
from trainwright.objects.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)

_FIRST = (NAMESPACES, STORAGE_CLASSES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
_NEVER_UPDATED = frozenset(_FIRST)
"""Resources that contain data or other objects: an existing object is left unchanged."""
_DELETE_SECONDS = 90.0


class Action(Enum):
    CREATE = "create"
    FOLLOW = "follow"
    RECREATE = "recreate"
    REPLACE = "replace"
    REFUSE = "refuse"


def plan_job(spec: Object | None, present: Object | None, *, replace: bool) -> Action:
    """What to do with a job of this spec: a finished job is recreated, an unfinished one with the same spec followed.

    Both specs are as the server stores them: with defaults, without nulls.
    """
    if present is None:
        return Action.CREATE
    if present["metadata"].get("deletionTimestamp") or finished_condition(present):
        return Action.RECREATE
    if spec == present.get("spec"):
        return Action.FOLLOW
    return Action.REPLACE if replace else Action.REFUSE


def finished_condition(job: Object) -> str | None:
    """`Succeeded` or `Failed` if the job has finished."""
    status = job.get("status") or {}
    return next((type_ for type_ in ("Succeeded", "Failed") if is_condition_true(status, type_)), None)


def in_apply_order(items: list[ValidObject]) -> list[ValidObject]:
    """Namespaces and volumes first, jobs last; otherwise in the order of the manifests."""

    def position(item: ValidObject) -> int:
        if item.job:
            return len(_FIRST) + 1
        return _FIRST.index(item.resource) if item.resource in _FIRST else len(_FIRST)

    return sorted(items, key=position)


def annotate_for_node(job: Object, directory: Path, *, flag: Path | None, active: Path | None) -> Object:
    """The job with the annotations for the embedded node: the directory of the manifest and the Python to use.

    The value of --python overrides the manifest's annotation, which overrides the Python of the active environment.
    """
    metadata = job["metadata"]
    annotations = {DIRECTORY: str(directory), PYTHON: str(active or ""), **(metadata.get("annotations") or {})}
    if flag:
        annotations[PYTHON] = str(flag)
    return {**job, "metadata": {**metadata, "annotations": {k: v for k, v in annotations.items() if v or k != PYTHON}}}


def active_python(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The Python of the active virtual or conda environment."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        # The symlink is not resolved: its target is the Python without the packages of the environment.
        if prefix and os.access(python := Path(prefix).absolute() / "bin" / "python", os.X_OK):
            return python
    return None


def apply_object(item: ValidObject, client: SyncClient) -> str:
    """Creates or updates an object that is not a job; returns kubectl's line about it.

    It uses server-side apply, which removes fields that an earlier manifest set and this one does not.
    """
    wanted, present = item.document.object, _present(item, client)
    if not wanted["metadata"].get("name"):
        client.create(item.resource, wanted, namespace=item.namespace)
        return f"{item.title} created"
    if present is not None and item.resource in _NEVER_UPDATED:
        different = ", ".join(differing_fields(wanted.get("spec"), present.get("spec"), "spec"))
        return f"{item.title} unchanged" + (f", although the manifest differs in {different}" if different else "")
    applied = client.patch(
        item.resource,
        item.document.name,
        wanted,
        namespace=item.namespace,
        kind=PatchKind.APPLY,
        field_manager="trainwright",
        force=True,
    )
    if present is None:
        return f"{item.title} created"
    same = applied["metadata"]["resourceVersion"] == present["metadata"]["resourceVersion"]
    return f"{item.title} {'unchanged' if same else 'configured'}"


def differing_fields(wanted: Any, present: Any, path: str) -> list[str]:
    """The fields of a manifest that differ from the existing object; fields that only the object has do not count."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        return [
            field
            for key, value in wanted.items()
            for field in differing_fields(value, present.get(key), f"{path}.{key}")
        ]
    return [] if wanted is None or wanted == present else [path]


def refuse_running_jobs(items: Iterable[ValidObject], client: SyncClient, *, replace: bool) -> None:
    """Raises CommandError if a job of the manifests is running with a different spec, before anything is applied."""
    jobs = [item for item in items if item.job]
    refused = [item for item in jobs if plan_job(item.spec, _present(item, client), replace=replace) is Action.REFUSE]
    if refused:
        raise CommandError("\n".join(map(_refusal, refused)))


def apply_job(
    item: ValidObject, wanted: Object, client: SyncClient, *, replace: bool, report: Callable[[str], None]
) -> Object:
    """Creates the job, or returns the existing one if it has the same spec. CommandError if `plan_job` refuses it."""
    present = _present(item, client)
    match plan_job(item.spec, present, replace=replace):
        case Action.FOLLOW:
            report(f"{item.title} is already running: following it")
            assert present is not None  # noqa: S101 (for the type checker: only a present job is followed)
            return present
        case Action.REFUSE:
            raise CommandError(_refusal(item))
        case Action.RECREATE:
            finished = finished_condition(present or {})
            report(f"{item.title} {f'has {finished.lower()}' if finished else 'is being deleted'}: recreating it")
            _delete(item, present, client)
        case Action.REPLACE:
            report(f"{item.title} is running with a different spec: replacing it")
            _delete(item, present, client)
        case Action.CREATE:
            pass
    created = client.create(item.resource, wanted, namespace=item.namespace)
    report(f"{item.title} created")
    return created


def _refusal(item: ValidObject) -> str:
    return (
        f"{item.title} is running with a different spec: delete and recreate it with --replace, "
        "or change metadata.name in the manifest"
    )


def _present(item: ValidObject, client: SyncClient) -> Object | None:
    if not item.document.object["metadata"].get("name"):
        return None  # generateName: the server chooses an unused name
    try:
        return client.get(item.resource, item.document.name, namespace=item.namespace)
    except NotFound:
        return None


def _delete(item: ValidObject, present: Object | None, client: SyncClient) -> None:
    """Deletes the job and waits until its pods are gone too, because those of its successor have the same names."""
    name, uid = item.document.name, value_at(present, "metadata", "uid")
    try:
        client.delete(item.resource, name, namespace=item.namespace, uid=uid, propagation="Foreground")
    except NotFound:
        return
    deadline, pause = time.monotonic() + _DELETE_SECONDS, 0.02
    while (left := _present(item, client)) and left["metadata"]["uid"] == uid:
        if time.monotonic() > deadline:
            finalizers = ", ".join(left["metadata"].get("finalizers") or ("none",))
            raise CommandError(
                f"{item.title} was not deleted in {_DELETE_SECONDS:.0f} s (finalizers: {finalizers}); try again later"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
