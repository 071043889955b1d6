"""Objects of which a job has one, named like itself: they are created, kept in line with the job, and removed."""

from collections.abc import Mapping

from trainwright.engine.draft import Draft
from trainwright.engine.observed import Companion
from trainwright.engine.policies.name_conflicts import wait_for
from trainwright.objects import Object
from trainwright.objects.matching import covers
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import Resource


def find(draft: Draft, resource: Resource) -> Companion | None:
    """The job's own one."""
    found = draft.observed.companions.get(resource.kind)
    if found is None or found.metadata.controller is None:
        return None
    return found if found.metadata.controller.uid == draft.job.metadata.uid else None


def keep(draft: Draft, resource: Resource, spec: Object, *, annotations: Mapping[str, str] | None = None) -> None:
    """Sees to it that the companion exists and says this; what else it says is left alone."""
    present = draft.observed.companions.get(resource.kind)
    ours = find(draft, resource)
    if present is None:
        draft.creates.append(_render(draft, resource, spec, annotations or {}))
    elif ours is None or ours.metadata.terminating:
        wait_for(draft, resource.kind, present.metadata)
    else:
        _correct(draft, resource, ours, spec, annotations or {})


def remove(draft: Draft, resource: Resource) -> bool:
    """Whether there was one that had not been told to go."""
    ours = find(draft, resource)
    if ours is None or ours.metadata.terminating:
        return False
    draft.delete(resource, ours.metadata)
    return True


def _render(draft: Draft, resource: Resource, spec: Object, annotations: Mapping[str, str]) -> Object:
    metadata: Object = {
        "name": draft.job.name,
        "namespace": draft.job.namespace,
        "ownerReferences": [controller_reference(draft.job.raw)],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _correct(draft: Draft, resource: Resource, ours: Companion, spec: Object, annotations: Mapping[str, str]) -> None:
    body: Object = {}
    if not covers(ours.spec, spec):
        body["spec"] = spec
    if not covers(ours.metadata.annotations, dict(annotations)):
        body["metadata"] = {"annotations": dict(annotations)}
    if body:
        draft.patch(resource, ours.metadata, body)
