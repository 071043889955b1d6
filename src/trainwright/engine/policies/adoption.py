"""Children without an owner that are the job's in everything else are adopted; children that somebody relabelled are
let go. So Kubernetes' own controllers treat their pods."""

import msgspec

from trainwright.engine.children import Sorted
from trainwright.engine.draft import Draft
from trainwright.engine.observed import ServiceView
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, controller_reference
from trainwright.objects.pods import Pod
from trainwright.objects.resources import PODS, SERVICES, Resource


def adopt(draft: Draft) -> None:
    """For a job that shall run: one that is suspended or has finished needs no more children."""
    _adopt(draft, PODS, draft.children.of_pods)
    _adopt(draft, SERVICES, draft.children.of_services)


def release(draft: Draft) -> None:
    _release(draft, PODS, draft.children.of_pods)
    _release(draft, SERVICES, draft.children.of_services)


def _adopt(draft: Draft, resource: Resource, children: Sorted[Pod] | Sorted[ServiceView]) -> None:
    for child in children.orphans.values():
        _own(draft, resource, child.metadata, [*_owners(child.metadata), controller_reference(draft.job.raw)])


def _release(draft: Draft, resource: Resource, children: Sorted[Pod] | Sorted[ServiceView]) -> None:
    for child in children.strays.values():
        others = [owner for owner in _owners(child.metadata) if owner["uid"] != draft.job.metadata.uid]
        _own(draft, resource, child.metadata, others)


def _own(draft: Draft, resource: Resource, child: ObjectMeta, owners: list[Object]) -> None:
    """A merge patch replaces the whole list, so it must be the list that we saw: hence the version."""
    metadata = {"ownerReferences": owners, "resourceVersion": child.resource_version}
    draft.patch(resource, child, {"metadata": metadata})


def _owners(child: ObjectMeta) -> list[Object]:
    return [
        {key: value for key, value in msgspec.to_builtins(owner).items() if value is not None}
        for owner in child.owner_references
    ]
