"""API discovery: the resources that the cluster serves, built-in and custom."""

import asyncio
from dataclasses import dataclass

import msgspec

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects.metadata import View
from trainwright.objects.resources import LEGACY_DEPLOYMENTS, Resource


@dataclass(frozen=True, slots=True)
class ServedResource:
    resource: Resource
    verbs: frozenset[str]


async def discover(client: Client) -> list[ServedResource]:
    """Every resource in the preferred version of its group. Raises if any request fails."""
    groups = msgspec.json.decode(await client.raw("GET", "/apis"), type=_GroupList).groups
    preferred = [group.preferred_version.group_version for group in groups]
    responses = await asyncio.gather(
        client.raw("GET", "/api/v1"), *(client.raw("GET", f"/apis/{version}") for version in preferred)
    )
    return [
        served
        for version, response in zip(["v1", *preferred], responses, strict=True)
        for served in read_resources(version, response)
        if served.resource != LEGACY_DEPLOYMENTS  # the same objects as those of apps/v1
    ]


async def find_resource(client: Client, api_version: str, kind: str) -> Resource | None:
    """The resource of a kind; None if it is not served (yet)."""
    path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    try:
        response = await client.raw("GET", path)
    except NotFound:
        return None
    found = (served.resource for served in read_resources(api_version, response))
    return next((resource for resource in found if resource.kind == kind), None)


def read_resources(group_version: str, response: bytes) -> list[ServedResource]:
    """The resources of an APIResourceList, without subresources."""
    group, _, version = group_version.rpartition("/")
    return [
        ServedResource(Resource(group, version, row.name, row.kind, namespaced=row.namespaced), frozenset(row.verbs))
        for row in msgspec.json.decode(response, type=_ResourceList).resources
        if "/" not in row.name
    ]


class _Version(View, frozen=True):
    group_version: str


class _Group(View, frozen=True):
    preferred_version: _Version


class _GroupList(View, frozen=True):
    groups: tuple[_Group, ...] = ()


class _Resource(View, frozen=True):
    name: str
    kind: str
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ResourceList(View, frozen=True):
    resources: tuple[_Resource, ...] = ()
