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
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS
from trainwright.operator.options import OperatorError

log = logging.getLogger(__name__)

_ESTABLISH_SECONDS = 30
_POLL_SECONDS = 0.05


async def missing_crds(client: Client, kinds: Iterable[Kind], *, namespace: str | None = None) -> list[str]:
    """The names of the CRDs that the cluster lacks. Checks by listing the jobs, which the operator is always allowed to
    do."""
    missing = []
    for kind in kinds:
        try:
            await client.raw("GET", kind.resource.path(namespace), params={"limit": "1"})
        except NotFound:
            missing.append(kind.resource.qualified_plural)
    return missing


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
        await _create_or_replace(client, definition)
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
            # Labels and annotations belong to the tool that installed it, a Helm chart for example.
            await client.replace(CUSTOM_RESOURCE_DEFINITIONS, {**present, "spec": definition["spec"]})
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
