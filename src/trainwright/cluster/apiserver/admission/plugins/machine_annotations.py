"""Annotations that give pods access to this machine: a directory of it, and the Python that programs start with.

They are for the machine's owner, who has every permission in the cluster and writes them with `trainwright run`, and
for users that a ClusterRoleBinding gives the verb `use` for `machines.node.trainwright.dev`. Other users can write
jobs and pods, and everything from which controllers make pods, but not these annotations anywhere in them; nor can they
change what an object with them runs.
"""

from collections.abc import Iterator
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, PREFIX, PYTHON
from trainwright.objects.resources import Resource

_OF_OWNER = frozenset({DIRECTORY, PYTHON})
_USE_OF_MACHINE = Attributes("use", PREFIX.rstrip("/"), "machines", "", "", "")
_NOT_PROGRAM = frozenset({"metadata", "status"})


def check_machine_annotations(
    authorizer: Authorizer, user: UserInfo, resource: Resource, new: Object, old: Object | None = None
) -> None:
    """Raises 403 unless the user may store the new object in place of the old one."""
    if user.is_master:
        return
    found, before = dict(_find(new, "")), dict(_find(old, "")) if old else {}
    if not found or (old and found == before and _program(new) == _program(old)):
        return
    if authorizer.authorize(user, _USE_OF_MACHINE).allowed:
        return
    path = next(iter(found))
    what = "only they change what runs with it" if found == before else "use a volume, or leave it out"
    why = f"{path}: it opens this machine to the pod, which is for the machine's owner (group system:masters); {what}"
    raise errors.forbidden(resource, new["metadata"].get("name", ""), why)


def _find(value: Object | list[Any], path: str) -> Iterator[tuple[str, Any]]:
    """Path and value of these annotations, at any depth: in templates of pods, in revisions, in custom resources."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _OF_OWNER:
                yield f"{path}[{key}]", item
            elif isinstance(item, (dict, list)):
                yield from _find(item, f"{path}.{key}" if path else key)
    else:
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                yield from _find(item, f"{path}[{index}]")


def _program(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in _NOT_PROGRAM}
