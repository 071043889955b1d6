"""Adopts orphans with the name and labels of a rank, and releases children that a user relabelled.

Kubernetes' own controllers do the same with their pods.
"""

from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, controller_reference
from trainwright.objects.resources import Resource


def adopt(facts: Facts, builder: PlanBuilder) -> None:
    """Only for a job that should run: a suspended or finished one needs no children."""
    for resource, children in facts.children.by_resource:
        for child in children.orphans.values():
            owners = [*_owners(child.metadata), controller_reference(facts.job.raw)]
            _set_owners(builder, resource, child.metadata, owners)


def release(facts: Facts, builder: PlanBuilder) -> None:
    for resource, children in facts.children.by_resource:
        for child in children.relabelled.values():
            others = [owner for owner in _owners(child.metadata) if owner["uid"] != facts.job.metadata.uid]
            _set_owners(builder, resource, child.metadata, others)


def _set_owners(builder: PlanBuilder, resource: Resource, child: ObjectMeta, owners: list[Object]) -> None:
    """A merge patch replaces the whole list, so it must apply to the observed version."""
    metadata = {"ownerReferences": owners, "resourceVersion": child.resource_version}
    builder.patch(resource, child, {"metadata": metadata})


def _owners(child: ObjectMeta) -> list[Object]:
    return [owner.to_object() for owner in child.owner_references]
