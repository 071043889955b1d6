"""The objects that jobs need besides pods and Services, and a check that the operator creates each of them once, never
deletes it, and changes no object of others."""

from collections import Counter
from collections.abc import Iterator

from trainwright.api.kinds import Kind
from trainwright.api.labels import JOB_NAME, OPERATOR_NAME
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource

_NAMES = {
    "MPIJob": {CONFIG_MAPS: "config", SERVICE_ACCOUNTS: "launcher", ROLES: "launcher", ROLE_BINDINGS: "launcher"},
}
"""By kind of job, the end of the name of each object."""

EXTRA_RESOURCES = tuple(dict.fromkeys(resource for names in _NAMES.values() for resource in names))


def extra_objects(kind: Kind, job: str) -> list[tuple[str, str]]:
    """Kind and name of the objects of a job."""
    return [(resource.kind, f"{job}-{end}") for resource, end in _NAMES.get(kind.name, {}).items()]


def bystanders(kind: Kind, job: str, namespace: str) -> Iterator[tuple[Resource, Object]]:
    """Objects of others with the labels of a job: the operator sees them and must not change them."""
    for resource in _NAMES.get(kind.name, ()):
        labels = {JOB_NAME: job, OPERATOR_NAME: kind.controller}
        metadata = {"name": f"{job}-bystander", "namespace": namespace, "labels": labels}
        body: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        if resource is ROLE_BINDINGS:
            body["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "other"}
        yield resource, body


class ExtraObjectInvariants:
    """`observe` takes every event of a watch of such objects; `violations` lists the rules that were broken."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.created: Counter[tuple[str, str, str]] = Counter()
        """How often an object was created: by its job, kind and name."""

    def observe(self, resource: Resource, event: str, item: Object) -> None:
        metadata = item["metadata"]
        if JOB_NAME not in metadata.get("labels", {}):
            return  # Kubernetes' own, such as the ServiceAccount default
        owner = next((one["name"] for one in metadata.get("ownerReferences", ()) if one.get("controller")), None)
        if owner is None:
            if event != "ADDED":
                self.violations.append(f"{resource.kind} {metadata['name']} of others: {event}")
        elif event == "ADDED":
            self.created[owner, resource.kind, metadata["name"]] += 1
        elif event == "DELETED":
            self.violations.append(f"{resource.kind} {metadata['name']} of {owner} was deleted")
