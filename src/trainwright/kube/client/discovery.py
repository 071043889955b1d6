"""API discovery: the resources that a cluster serves, built-in and custom."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from trainwright.kube.client.errors import NotFound
from trainwright.objects.resources import LEGACY_DEPLOYMENTS, Resource

if TYPE_CHECKING:  # commands with the synchronous client start without asyncio and aiohttp
    from trainwright.kube.client.async_client import Client


@dataclass(frozen=True, slots=True)
class ServedResource:
    resource: Resource
    verbs: frozenset[str]


async def discover(client: "Client") -> list[ServedResource]:
    """Every resource in the preferred version of its group. Raises if any request fails."""
    import asyncio

    groups = msgspec.json.decode(await client.raw("GET", "/apis")).get("groups") or ()
    versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
    responses = await asyncio.gather(*(client.raw("GET", discovery_path(version)) for version in versions))
    return [
        served
        for version, response in zip(versions, responses, strict=True)
        for served in read_resources(version, response)
        if served.resource != LEGACY_DEPLOYMENTS  # the same objects as those of apps/v1
    ]


async def find_resource(client: "Client", api_version: str, kind: str) -> Resource | None:
    """The resource of a kind; None if it is not served (yet)."""
    try:
        response = await client.raw("GET", discovery_path(api_version))
    except NotFound:
        return None
    found = (served.resource for served in read_resources(api_version, response))
    return next((resource for resource in found if resource.kind == kind), None)


def discovery_path(api_version: str) -> str:
    """Where the resources of a group and version are listed."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def read_resources(api_version: str, response: bytes) -> list[ServedResource]:
    """The resources of an APIResourceList, without subresources."""
    group, _, version = api_version.rpartition("/")
    return [
        ServedResource(
            Resource(group, version, row["name"], row["kind"], namespaced=row.get("namespaced", False)),
            frozenset(row.get("verbs") or ()),
        )
        for row in msgspec.json.decode(response).get("resources") or ()
        if "/" not in row["name"]
    ]
