"""Brings checked objects to the cluster: what they need first, then the jobs, which replace what they have to replace.

What to do about a job that is there already is decided by `plan_job`, a function of the two objects.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from trainwright.cli.errors import Problem
from trainwright.cli.manifests.validation import Item
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
_KEPT = frozenset(_FIRST)
"""What holds data or other objects: if it is there, it stays as it is."""
_DELETE_SECONDS = 90.0


class Action(Enum):
    CREATE = "create"
    FOLLOW = "follow"
    RUN_AGAIN = "run again"
    REPLACE = "replace"
    REFUSE = "refuse"


def plan_job(spec: Object | None, present: Object | None, *, replace: bool) -> Action:
    """What becomes of a job with this spec: a finished one makes room, an unfinished one is followed if it is the same.

    Both specs are the server's own: with its defaults, without nulls.
    """
    if present is None:
        return Action.CREATE
    if present["metadata"].get("deletionTimestamp") or end_of(present):
        return Action.RUN_AGAIN
    if spec == present.get("spec"):
        return Action.FOLLOW
    return Action.REPLACE if replace else Action.REFUSE


def end_of(job: Object) -> str | None:
    """`Succeeded` or `Failed` if the job is over."""
    status = job.get("status") or {}
    return next((type_ for type_ in ("Succeeded", "Failed") if is_condition_true(status, type_)), None)


def in_order(items: list[Item]) -> list[Item]:
    """What others need comes first, jobs come last; otherwise as written."""

    def rank(item: Item) -> int:
        if item.job:
            return len(_FIRST) + 1
        return _FIRST.index(item.resource) if item.resource in _FIRST else len(_FIRST)

    return sorted(items, key=rank)


def annotated(job: Object, directory: Path, *, asked: Path | None, active: Path | None) -> Object:
    """The job with what the embedded node has to know about whoever called `run`.

    The Python that was asked for wins over the manifest's own, which wins over that of the active environment.
    """
    metadata = job["metadata"]
    annotations = {DIRECTORY: str(directory), PYTHON: str(active or ""), **(metadata.get("annotations") or {})}
    if asked:
        annotations[PYTHON] = str(asked)
    return {**job, "metadata": {**metadata, "annotations": {k: v for k, v in annotations.items() if v or k != PYTHON}}}


def caller_python(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The Python of the virtual or conda environment that is active where the command is called."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environment.get(variable)
        # Not resolved: through its link, a virtual environment's Python is the one without its packages.
        if prefix and os.access(python := Path(prefix).absolute() / "bin" / "python", os.X_OK):
            return python
    return None


def apply_other(item: Item, client: SyncClient) -> str:
    """Creates or updates an object that is no job; what became of it, in kubectl's words.

    It is applied by the server, which knows what an earlier manifest said: fields that are gone from it go.
    """
    wanted, present = item.document.object, _present(item, client)
    if not wanted["metadata"].get("name"):
        client.create(item.resource, wanted, namespace=item.namespace)
        return f"{item.title} created"
    if present is not None and item.resource in _KEPT:
        other = ", ".join(differing_fields(wanted.get("spec"), present.get("spec"), "spec"))
        return f"{item.title} kept, although the manifest has another {other}" if other else f"{item.title} unchanged"
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
    """Where the object that is there is not what a manifest says; what only the server says is no difference."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        return [
            field
            for key, value in wanted.items()
            for field in differing_fields(value, present.get(key), f"{path}.{key}")
        ]
    return [] if wanted is None or wanted == present else [path]


def refuse_others(items: Iterable[Item], client: SyncClient, *, replace: bool) -> None:
    """A Problem that names every job in whose place another one runs: then nothing of these manifests is applied."""
    jobs = [item for item in items if item.job]
    refused = [item for item in jobs if plan_job(item.spec, _present(item, client), replace=replace) is Action.REFUSE]
    if refused:
        raise Problem("\n".join(map(_running_otherwise, refused)))


def apply_job(item: Item, wanted: Object, client: SyncClient, *, replace: bool, say: Callable[[str], None]) -> Object:
    """Sees to it that the job runs, and returns it. A Problem if another one of its name is in the way."""
    present = _present(item, client)
    match plan_job(item.spec, present, replace=replace):
        case Action.FOLLOW:
            say(f"{item.title} is running already: following it")
            assert present is not None  # noqa: S101 (for the type checker: only a present job is followed)
            return present
        case Action.REFUSE:
            raise Problem(_running_otherwise(item))
        case Action.RUN_AGAIN:
            say(f"{item.title} {_how_it_ended(present)}: deleting it to run it again")
            _delete(item, present, client)
        case Action.REPLACE:
            say(f"{item.title} is running with another spec: replacing it")
            _delete(item, present, client)
        case Action.CREATE:
            pass
    created = client.create(item.resource, wanted, namespace=item.namespace)
    say(f"{item.title} created")
    return created


def _running_otherwise(item: Item) -> str:
    return (
        f"{item.title} is running with another spec: run again with --replace to end it and start this one, "
        "or give this one another name"
    )


def _present(item: Item, client: SyncClient) -> Object | None:
    if not item.document.object["metadata"].get("name"):
        return None  # the server chooses a fresh name
    try:
        return client.get(item.resource, item.document.name, namespace=item.namespace)
    except NotFound:
        return None


def _delete(item: Item, present: Object | None, client: SyncClient) -> None:
    """Returns when the job and its pods are gone: the next one's pods have the same names."""
    name, uid = item.document.name, value_at(present, "metadata", "uid")
    try:
        client.delete(item.resource, name, namespace=item.namespace, uid=uid, propagation="Foreground")
    except NotFound:
        return
    deadline, pause = time.monotonic() + _DELETE_SECONDS, 0.02
    while (left := _present(item, client)) and left["metadata"]["uid"] == uid:
        if time.monotonic() > deadline:
            held_by = ", ".join(left["metadata"].get("finalizers") or ()) or "its pods"
            raise Problem(f"{item.title} is not gone after {_DELETE_SECONDS:.0f} s, held by {held_by}; try again later")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _how_it_ended(present: Object | None) -> str:
    end = end_of(present or {})
    return f"has {end.lower()} before" if end else "is being deleted"
