"""The metadata of objects: names, owners, versions. Views are read-only and have only the fields that are needed."""

from typing import Any

import msgspec

from trainwright.objects import Object


class View(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A typed, trimmed view of an object: decoding drops fields that the type does not declare."""


class OwnerReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    def to_object(self) -> Object:
        return {key: value for key, value in msgspec.to_builtins(self).items() if value is not None}


class Identity(View, frozen=True):
    """The part of the metadata that says which version of which object it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def namespaced_name(self) -> str:
        """`NAMESPACE/NAME`, or `NAME` for a cluster-scoped object: the key of a store."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectMeta(Identity, frozen=True):
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if it has one."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None

    @property
    def terminating(self) -> bool:
        return self.deletion_timestamp is not None

    def reference(self, kind: str) -> Object:
        """The ObjectReference of a core object, for events about it."""
        reference = {"apiVersion": "v1", "kind": kind, "namespace": self.namespace, "name": self.name, "uid": self.uid}
        return reference | {"resourceVersion": self.resource_version}


class AnyObject(View, frozen=True):
    """Any object, of which nothing but the metadata is needed."""

    metadata: ObjectMeta


def namespaced_name(obj: Object) -> str:
    """`NAMESPACE/NAME`, or `NAME` for a cluster-scoped object: the key of a store."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def controller_reference(owner: Object) -> dict[str, Any]:
    """The ownerReference of a child that `owner` manages."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
