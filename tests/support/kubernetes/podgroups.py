"""The PodGroup CRDs of both gang schedulers for the real API server, with open schemas."""

from contextlib import suppress

from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS


async def serve_pod_groups(client: Client, gang: GangScheduler) -> None:
    """Installs the CRD and waits until it is served."""
    with suppress(AlreadyExists):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, _definition(gang))

    async def served() -> bool:
        try:
            await client.list(gang.resource, namespace="default")
        except NotFound:
            return False
        return True

    await eventually(served, bool)


def _definition(gang: GangScheduler) -> Object:
    resource = gang.resource
    everything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}} if gang.is_volcano else {},
        "schema": {"openAPIV3Schema": everything},
    }
    return {
        "apiVersion": CUSTOM_RESOURCE_DEFINITIONS.api_version,
        "kind": CUSTOM_RESOURCE_DEFINITIONS.kind,
        "metadata": {
            "name": resource.qualified_plural,
            # The name ends in k8s.io for one of them, which the server protects.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests alone"},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"kind": resource.kind, "listKind": "PodGroupList", "plural": "podgroups", "singular": "podgroup"},
            "versions": [version],
        },
    }
