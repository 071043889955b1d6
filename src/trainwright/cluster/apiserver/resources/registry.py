"""The resources that are served: the built-in ones and those of the installed CRDs."""

from collections.abc import Mapping, Sequence

from trainwright.cluster.apiserver.resources.builtin_types import builtin_types
from trainwright.cluster.apiserver.resources.crds import types_of
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Change, ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource


class Registry:
    """Resource types by group, version and plural. `generation` increases with every change.

    `computed` are resources of which no objects are stored, with their verbs.
    """

    def __init__(self, computed: Mapping[Resource, Sequence[str]] | None = None) -> None:
        self.computed = computed or {}
        self._types = {_key(kind.resource): kind for kind in builtin_types()}
        self._by_crd: dict[str, tuple[Object, list[ResourceType]]] = {}
        self.generation = 1

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        return self._types.get((group, version, plural))

    def find_computed(self, group: str, version: str, plural: str) -> Resource | None:
        wanted = (group, version, plural)
        return next((resource for resource in self.computed if _key(resource) == wanted), None)

    def of(self, resource: Resource) -> ResourceType:
        return self._types[_key(resource)]

    def versions_of(self, kind: ResourceType) -> list[ResourceType]:
        """The served versions of a resource, whose objects are the same."""
        return [other for other in self._types.values() if other.key == kind.key]

    def types(self) -> list[ResourceType]:
        return list(self._types.values())

    def versions(self) -> dict[str, list[str]]:
        """The served versions of each group, core first; within a group in the order of definition."""
        groups: dict[str, list[str]] = {}
        for kind in self._types.values():
            versions = groups.setdefault(kind.resource.group, [])
            if kind.resource.version not in versions:
                versions.append(kind.resource.version)
        return groups

    def follow(self, store: ObjectStore) -> None:
        """Serves the custom resources of the CRDs in the store, now and whenever one changes."""
        key = CUSTOM_RESOURCE_DEFINITIONS.qualified_plural
        for stored in store.list(key):
            self.install(stored.obj)
        store.subscribe(key, self._crd_changed)

    def _crd_changed(self, change: Change) -> None:
        if change.removed:
            self.uninstall(change.new.key[1])
        else:
            self.install(change.new.obj)

    def install(self, crd: Object) -> None:
        """Adds or replaces the resource types of a CRD; does nothing if its spec has not changed."""
        name = crd["metadata"]["name"]
        known = self._by_crd.get(name)
        if known and known[0] == crd["spec"]:
            return
        self.uninstall(name)
        types = [kind for kind in types_of(crd) if _key(kind.resource) not in self._types]  # built-in kinds stay
        self._by_crd[name] = (crd["spec"], types)
        self._types |= {_key(kind.resource): kind for kind in types}
        self.generation += 1

    def uninstall(self, name: str) -> None:
        _, types = self._by_crd.pop(name, ({}, []))
        for kind in types:
            del self._types[_key(kind.resource)]
        self.generation += bool(types)

    def of_crd(self, name: str) -> list[ResourceType]:
        """The resource types of the CRD of that name."""
        return self._by_crd.get(name, ({}, []))[1]


def _key(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural
