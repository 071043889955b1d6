"""Objects that belong to one job: created before it, owned by it as soon as it exists, deleted with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from trainwright.cli.errors import CommandError
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unreachable
from trainwright.kube.client.requests import PatchKind
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import Resource

JOB_LABEL = "trainwright.dev/job"
"""On objects that `run` created for a job: its name. It also shows whose they are before they have an owner."""


@dataclass(frozen=True, slots=True)
class OwnedObject:
    resource: Resource
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


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
            _create(owned, kind, namespace, client)
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


def _create(owned: OwnedObject, kind: str, namespace: str | None, client: SyncClient) -> None:
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
