"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had; `kubectl rollout` restores them."""

from collections.abc import Collection, Sequence
from contextlib import suppress

from trainwright.cluster.controllers.workloads.plans.pod_template import same_template, template_hash
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.store import raw_metadata
from trainwright.objects import Object, copied
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import CONTROLLER_REVISIONS

HASH = "controller.kubernetes.io/hash"
"""A label of ControllerRevisions."""


def template_of(revision: Object) -> Object:
    """The pod template that was recorded."""
    recorded: Object = revision["data"]["spec"]["template"]
    return {key: value for key, value in recorded.items() if key != "$patch"}


class RevisionHistory:
    """The revisions of one owner at a time, read from the API: they change rarely."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, owner: Object) -> list[Object]:
        """Oldest first."""
        metadata = owner["metadata"]
        listed = (await self._client.list(CONTROLLER_REVISIONS, namespace=metadata["namespace"])).items
        owned = [revision for revision in listed if _is_owned(revision, metadata["uid"])]
        return sorted(owned, key=lambda revision: int(revision["revision"]))

    async def update_revision(self, owner: Object, known: Sequence[Object]) -> Object:
        """The revision of the owner's template, which is created, or becomes the newest again after an undo."""
        template = owner["spec"]["template"]
        number = known[-1]["revision"] + 1 if known else 1
        equal = next((old for old in reversed(known) if same_template(template_of(old), template)), None)
        if equal is not None and equal is known[-1]:
            return equal
        if equal is not None:
            return await self._client.replace(CONTROLLER_REVISIONS, equal | {"revision": number})
        metadata = owner["metadata"]
        digest = template_hash(template, (owner.get("status") or {}).get("collisionCount"))
        name = f"{metadata['name']}-{digest}"
        revision = {
            "apiVersion": CONTROLLER_REVISIONS.api_version,
            "kind": CONTROLLER_REVISIONS.kind,
            "metadata": {
                "name": name,
                "namespace": metadata["namespace"],
                "labels": {**(template["metadata"].get("labels") or {}), HASH: digest},
                "ownerReferences": [controller_reference(owner)],
            },
            "data": {"spec": {"template": copied(template) | {"$patch": "replace"}}},
            "revision": number,
        }
        with suppress(AlreadyExists):
            return await self._client.create(CONTROLLER_REVISIONS, revision)
        return await self._client.get(CONTROLLER_REVISIONS, name, namespace=metadata["namespace"])

    async def prune(self, owner: Object, known: Sequence[Object], used: Collection[str]) -> None:
        """Deletes the oldest revisions beyond the limit that no pod has; `used` are names."""
        unused = [revision for revision in known if revision["metadata"]["name"] not in used]
        limit = owner["spec"].get("revisionHistoryLimit", 10)
        for revision in unused[: max(0, len(unused) - limit)]:
            with suppress(NotFound):
                metadata = revision["metadata"]
                await self._client.delete(CONTROLLER_REVISIONS, metadata["name"], namespace=metadata["namespace"])


def _is_owned(revision: Object, uid: str) -> bool:
    owner = raw_metadata(revision).controller
    return owner is not None and owner.uid == uid
