"""Applies validated objects: first the objects that jobs need, then the jobs.

`plan_job` decides, without I/O, what to do about a job that already exists.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from trainwright.api.annotations import PROGRAM
from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.summary import finished_state
from trainwright.cli.manifests.reader import JOB_LABEL, Document, OwnedObject, is_unicode
from trainwright.cli.manifests.validation import ValidObject
from trainwright.cli.targets import Target
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.client.requests import PatchKind
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, PYTHON
from trainwright.objects.paths import value_at
from trainwright.objects.resources import (
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
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


def plan_job(spec: Object | None, present: Object | None, *, replace: bool, edited: bool = False) -> Action:
    """What to do with a job of this spec: a finished job is recreated, an unfinished one with the same spec followed.

    Both specs are as the server stores them: with defaults, without nulls. `edited`: the program or its variables have
    changed since the job was created.
    """
    if present is None:
        return Action.CREATE
    if present["metadata"].get("deletionTimestamp") or finished_state(present):
        return Action.RECREATE
    if is_stopped(spec, present):
        return Action.REPLACE if replace else Action.REFUSE
    if _without_suspend(spec) == _without_suspend(present.get("spec")) and _suspend(spec) == _suspend(present["spec"]):
        return Action.REPLACE if edited and replace else Action.FOLLOW
    return Action.REPLACE if replace else Action.REFUSE


def is_stopped(spec: Object | None, present: Object) -> bool:
    """True if the existing job was stopped or suspended, and a job of this spec would run."""
    return _suspend(present.get("spec")) and not _suspend(spec)


def _suspend(spec: Object | None) -> bool:
    return bool(value_at(spec or {}, "runPolicy", "suspend"))


def _without_suspend(spec: Object | None) -> Object:
    """`stop` and `resume` change this field: the rest is what the user wrote."""
    policy = {name: value for name, value in ((spec or {}).get("runPolicy") or {}).items() if name != "suspend"}
    return {**(spec or {}), "runPolicy": policy}


def in_apply_order(items: list[ValidObject]) -> list[ValidObject]:
    """Namespaces and volumes first, jobs last; otherwise in the order of the manifests."""

    def position(item: ValidObject) -> int:
        if item.job:
            return len(_FIRST) + 1
        return _FIRST.index(item.resource) if item.resource in _FIRST else len(_FIRST)

    return sorted(items, key=position)


def annotated_for_node(
    document: Document, *, workdir: Path | None = None, flag: Path | None = None, default: Path | None = None
) -> Document:
    """A job with the annotations for the embedded node: its directory and the Python to use.

    --workdir and --python override the manifest's annotations, which override its directory and the caller's Python.
    """
    if document.job_kind is None:
        return document
    directory = workdir.absolute() if workdir else document.directory
    _check_names(directory, flag or default)
    metadata = document.object["metadata"]
    defaults = {DIRECTORY: str(directory), **({PYTHON: str(default)} if default else {})}
    given = {**({DIRECTORY: str(directory)} if workdir else {}), **({PYTHON: str(flag)} if flag else {})}
    annotations = {**defaults, **(metadata.get("annotations") or {}), **given}
    return replace(document, object={**document.object, "metadata": {**metadata, "annotations": annotations}})


def _check_names(directory: Path, python: Path | None) -> None:
    """Linux allows any bytes in the name of a file, the Kubernetes API only UTF-8."""
    for path, flag in ((directory, "--workdir"), (python, "--python")):
        if path and not is_unicode(str(path)):
            name = os.fsencode(path).decode(errors="backslashreplace")
            raise CommandError(
                f"{name} is not a UTF-8 name, so a job cannot contain it: rename it, or name another one with {flag}"
            )


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


def refuse_running_jobs(items: Iterable[ValidObject], client: SyncClient, target: Target, *, replace: bool) -> None:
    """Raises CommandError if a job is stopped or is running with a different spec, before anything is applied."""
    jobs = [(item, _present(item, client)) for item in items if item.job]
    refused = [
        _refusal(item, present, target)
        for item, present in jobs
        if present is not None and plan_job(item.spec, present, replace=replace) is Action.REFUSE
    ]
    if refused:
        raise CommandError("\n".join(refused))


def apply_job(
    item: ValidObject, client: SyncClient, target: Target, *, replace: bool, report: Callable[[str], None]
) -> Object:
    """Creates the job, or returns the existing one if it has the same spec. CommandError if `plan_job` refuses it."""
    present = _present(item, client)
    changes = changes_since(item, present, client)
    match plan_job(item.spec, present, replace=replace, edited=bool(changes)):
        case Action.FOLLOW:
            report(f"{item.title} is already running: following it")
            for change in changes:
                report(f"  {change}: to restart the job, use --replace")
            assert present is not None  # noqa: S101 (for the type checker: only a present job is followed)
            return present
        case Action.REFUSE:
            raise CommandError(_refusal(item, present or {}, target))
        case Action.RECREATE:
            finished = finished_state(present or {})
            report(f"{item.title} {f'has {finished.lower()}' if finished else 'is being deleted'}: recreating it")
            _delete(item, present, client)
        case Action.REPLACE:
            old = "running an earlier program" if changes else "running with a different spec"
            report(f"{item.title} is {'stopped' if is_stopped(item.spec, present or {}) else old}: replacing it")
            _delete(item, present, client)
        case Action.CREATE:
            pass
    with owned_objects(item.document.owned, client, kind=item.resource.kind, namespace=item.namespace) as adopt:
        created = client.create(item.resource, item.document.object, namespace=item.namespace)
        try:
            adopt(created)
        except BaseException:
            # Without its objects the job cannot run, and without an owner they would outlive it.
            _delete(item, created, client)
            raise
    report(f"{item.title} created")
    return created


def changes_since(item: ValidObject, present: Object | None, client: SyncClient) -> list[str]:
    """What has changed since the job was created, although its spec is the same: files of its program, variables."""
    if present is None:
        return []
    changes = []
    if edited := edited_files(item.document.object, present):
        has = "has" if len(edited) == 1 else "have"
        changes.append(f"{', '.join(edited)} {has} been edited since the job started")
    for owned in item.document.owned:
        if owned.resource == SECRETS and (names := _changed_variables(owned, item.namespace, client)):
            have = "has" if len(names) == 1 else "have"
            changes.append(f"{', '.join(names)} {have} another value in the running job")
    return changes


def edited_files(wanted: Object, present: Object) -> list[str]:
    """The files of the program that were edited since the job was created, by the digests on both jobs."""
    new, old = (_digests(job) for job in (wanted, present))
    return sorted(path for path in new.keys() | old.keys() if new.get(path) != old.get(path)) if new and old else []


def _digests(job: Object) -> dict[str, str]:
    text = value_at(job, "metadata", "annotations", PROGRAM)
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _changed_variables(owned: OwnedObject, namespace: str | None, client: SyncClient) -> list[str]:
    try:
        present = client.get(owned.resource, owned.name, namespace=namespace).get("data") or {}
    except (ApiError, Unreachable):
        return []  # deleted, or not allowed to get: the job keeps running with what it has
    return [name for name, value in owned.object["data"].items() if present.get(name) != value]


def _refusal(item: ValidObject, present: Object, target: Target) -> str:
    if is_stopped(item.spec, present):
        other = item.namespace and (target.namespace_flag or item.namespace != target.config.namespace)
        flags = (f" -n {item.namespace}" if other else "") + target.flags
        same = _without_suspend(item.spec) == _without_suspend(present.get("spec"))
        return (
            f"{item.title} is stopped{'' if same else ', with a different spec'}: "
            f"continue it with `trainwright resume {item.document.name}{flags}`, or run it anew with --replace"
        )
    return (
        f"{item.title} is running with a different spec: delete and recreate it with --replace, "
        "or give the new one another name (metadata.name, or --name for a program)"
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


# Objects that belong to a job


@contextmanager
def owned_objects(
    objects: Sequence[OwnedObject], client: SyncClient, *, kind: str, namespace: str | None
) -> Iterator[Callable[[Object], None]]:
    """Creates the objects and yields a function that makes a job of this kind their owner.

    If the block fails, they are deleted.
    """
    created: list[OwnedObject] = []
    try:
        for owned in objects:
            _create_owned(owned, kind, namespace, client)
            created.append(owned)

        def adopt(job: Object) -> None:
            for owned in created:
                _set_owner(owned, job, namespace, client)

        yield adopt
    except BaseException:
        for owned in created:
            with suppress(ApiError, Unreachable):
                client.delete(owned.resource, owned.name, namespace=namespace)
        raise


def _create_owned(owned: OwnedObject, kind: str, namespace: str | None, client: SyncClient) -> None:
    try:
        client.create(owned.resource, owned.object, namespace=namespace)
    except AlreadyExists:
        # An interrupted `run` has left it, or the garbage collector has not deleted it yet.
        present = client.get(owned.resource, owned.name, namespace=namespace)
        label = (present["metadata"].get("labels") or {}).get(JOB_LABEL)
        kinds = {owner["kind"] for owner in present["metadata"].get("ownerReferences") or ()}
        if label != owned.object["metadata"]["labels"][JOB_LABEL] or kinds - {kind}:
            raise CommandError(
                f"{owned.resource.kind} {owned.name} exists already and does not belong to the job: delete it, or give "
                "the job another name"
            ) from None
        with suppress(NotFound):
            client.delete(owned.resource, owned.name, namespace=namespace, uid=present["metadata"]["uid"])
        client.create(owned.resource, owned.object, namespace=namespace)


def _set_owner(owned: OwnedObject, job: Object, namespace: str | None, client: SyncClient) -> None:
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        # A job that is deleted in the foreground, to be created again, takes them along first.
        "blockOwnerDeletion": True,
    }
    patch = {"metadata": {"ownerReferences": [owner]}}
    client.patch(owned.resource, owned.name, patch, namespace=namespace, kind=PatchKind.MERGE)
