"""The CustomResourceDefinitions of our kinds in a cluster: are they there, and installing them."""

import asyncio
from collections.abc import Iterable

from trainwright.api.crd import render_crd
from trainwright.api.kinds import Kind
from trainwright.kube.client import Client
from trainwright.kube.errors import AlreadyExists, Conflict, NotFound
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainwright.operator.options import OperatorError

_ESTABLISH_SECONDS = 30
_POLL_SECONDS = 0.05


async def missing_crds(client: Client, kinds: Iterable[Kind], *, namespace: str | None = None) -> list[str]:
    """The names of the definitions that the cluster lacks. Asks by listing, for which an operator has the right."""
    missing = []
    for kind in kinds:
        try:
            await client.raw("GET", kind.resource.path(namespace), params={"limit": "1"})
        except NotFound:
            missing.append(kind.resource.qualified_plural)
    return missing


async def install_crds(client: Client, kinds: Iterable[Kind]) -> None:
    """Creates the definitions, or brings those that are there up to date, and waits until they are served."""
    definitions = [render_crd(kind) for kind in kinds]
    for definition in definitions:
        await _create_or_replace(client, definition)
    for definition in definitions:
        await _wait_until_established(client, definition["metadata"]["name"])


async def _create_or_replace(client: Client, definition: Object) -> None:
    name = definition["metadata"]["name"]
    while True:
        try:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            return
        except AlreadyExists:
            pass
        try:
            present = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
            # Labels and annotations are those of whoever installed it, a Helm chart for example.
            await client.replace(CUSTOM_RESOURCE_DEFINITIONS, {**present, "spec": definition["spec"]})
            return
        except (Conflict, NotFound):
            continue  # somebody else changed it in between


async def _wait_until_established(client: Client, name: str) -> None:
    # Polled, because it takes but a few milliseconds: less than opening a watch.
    deadline = asyncio.get_running_loop().time() + _ESTABLISH_SECONDS
    while not _established(definition := await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)):
        if asyncio.get_running_loop().time() > deadline:
            conditions = (definition.get("status") or {}).get("conditions")
            raise OperatorError(f"{name} was installed but is not served after {_ESTABLISH_SECONDS} s: {conditions}")
        await asyncio.sleep(_POLL_SECONDS)


def _established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
