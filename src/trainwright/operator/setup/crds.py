"""The CustomResourceDefinitions of our kinds in a cluster: checks and installation."""

import asyncio
import logging
from collections.abc import Iterable

import msgspec

from trainwright.api.crd import render_crd
from trainwright.api.kinds import GROUP, VERSION, Kind
from trainwright.api.pruned_status import ADDITIONAL_FIELDS
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from trainwright.operator.options import OperatorError

log = logging.getLogger(__name__)

_ESTABLISH_SECONDS = 30
_POLL_SECONDS = 0.05


async def is_served(client: Client, resource: Resource, namespace: str | None) -> bool:
    """Checks by a list, which needs no other permission than the operator has for its work."""
    try:
        await client.raw("GET", resource.path(namespace), params={"limit": "1"})
    except NotFound:
        return False
    return True


async def kinds_pruning_status(client: Client, kinds: Iterable[Kind]) -> frozenset[str]:
    """The kinds whose installed CRD prunes our status fields, as upstream's does. Reads the published schema, which
    every user is allowed to read. If that fails, the first status write shows which fields are pruned."""
    try:
        text = await client.raw("GET", f"/openapi/v3/apis/{GROUP}/{VERSION}")
        schemas = msgspec.json.decode(text, type=_OpenApi).components.schemas
    except (ApiError, msgspec.DecodeError) as error:
        log.info("cannot read the schema of %s/%s: %s", GROUP, VERSION, error)
        return frozenset()
    return frozenset(kind.name for kind in kinds if _prunes_fields(schemas.get(_schema_name(kind), {})))


async def install_crds(client: Client, kinds: Iterable[Kind]) -> None:
    """Creates or updates the CRDs and waits until they are established."""
    definitions = [render_crd(kind) for kind in kinds]
    for definition in definitions:
        await create_or_replace(client, CUSTOM_RESOURCE_DEFINITIONS, definition, "spec")
    for definition in definitions:
        await _wait_until_established(client, definition["metadata"]["name"])


class _Components(msgspec.Struct):
    schemas: dict[str, Object] = {}


class _OpenApi(msgspec.Struct):
    components: _Components


def _schema_name(kind: Kind) -> str:
    return f"{'.'.join(reversed(GROUP.split('.')))}.{VERSION}.{kind.name}"


def _prunes_fields(schema: Object) -> bool:
    status = (schema.get("properties") or {}).get("status") or {}
    declared = status.get("properties") or {}
    return (
        bool(declared)
        and not status.get("x-kubernetes-preserve-unknown-fields")
        and not set(ADDITIONAL_FIELDS) <= set(declared)
    )


async def create_or_replace(client: Client, resource: Resource, obj: Object, field: str) -> None:
    """Creates the object, or replaces this field of the present one: its labels and annotations belong to the tool that
    installed it, a Helm chart for example."""
    while True:
        try:
            await client.create(resource, obj)
            return
        except AlreadyExists:
            pass
        try:
            present = await client.get(resource, obj["metadata"]["name"])
            await client.replace(resource, {**present, field: obj[field]})
            return
        except (Conflict, NotFound):
            continue  # another client has changed it


async def _wait_until_established(client: Client, name: str) -> None:
    # Polled, because it takes a few milliseconds, less than opening a watch.
    deadline = asyncio.get_running_loop().time() + _ESTABLISH_SECONDS
    while not is_condition_true(
        (definition := await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)).get("status") or {}, "Established"
    ):
        if asyncio.get_running_loop().time() > deadline:
            conditions = (definition.get("status") or {}).get("conditions")
            raise OperatorError(
                f"{name} is not established {_ESTABLISH_SECONDS} s after its installation: {conditions}"
            )
        await asyncio.sleep(_POLL_SECONDS)
