"""The jobs of one namespace as a test sees and changes them: their status, children and events.

Results are literal values, as users see them, so that a test compares exactly.
"""

import copy
import itertools
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Self

from tests.support.background import in_background
from tests.support.harness.running_operator import settled
from tests.support.objects.jobs import JobBuilder
from tests.support.objects.upstream import Condition
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.api.labels import JOB_NAME
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, PODS, SERVICES, Resource
from trainwright.operator import JobController

Event = tuple[str, str, str]
"""Type, reason and message of an event."""

_numbers = itertools.count(1)


class JobHarness:
    """One namespace with an operator and jobs of one kind."""

    def __init__(self, client: Client, namespace: str, operator: JobController, *, kind: Kind = PYTORCH) -> None:
        self.client = client
        self.namespace = namespace
        self.operator = operator
        self.kind = kind

    def of(self, kind: Kind) -> Self:
        """The same harness for jobs of another kind."""
        other = copy.copy(self)
        other.kind = kind
        return other

    # Reading

    async def job(self, name: str) -> Object:
        return await self.client.get(self.kind.resource, name, namespace=self.namespace)

    async def exists(self, name: str) -> bool:
        try:
            await self.job(name)
        except NotFound:
            return False
        return True

    async def status(self, name: str) -> Object:
        status: Object = (await self.job(name)).get("status") or {}
        return status

    async def conditions(self, name: str) -> list[Condition]:
        return conditions_of(await self.job(name))

    async def pods(self, job: str) -> dict[str, Object]:
        return await self._children(PODS, job)

    async def services(self, job: str) -> dict[str, Object]:
        return await self._children(SERVICES, job)

    async def events(self, name: str) -> set[Event]:
        """The events of the job, all of which must come from the kind's controller."""
        found = await self.client.list(
            EVENTS,
            namespace=self.namespace,
            field_selector=f"involvedObject.name={name},involvedObject.kind={self.kind.name}",
        )
        assert {event["source"]["component"] for event in found.items} <= {self.kind.controller}
        return {(event["type"], event["reason"], event["message"]) for event in found.items}

    # Changes by users

    async def submit(self, builder: JobBuilder) -> Object:
        return await submit(self.client, builder.metadata(namespace=self.namespace))

    async def change(self, name: str, **spec: object) -> Object:
        """A merge patch of the job's spec."""
        return await self.client.patch(self.kind.resource, name, {"spec": spec}, namespace=self.namespace)

    async def suspend(self, name: str, suspended: bool = True) -> Object:
        return await self.change(name, runPolicy={"suspend": suspended})

    # Waiting

    async def wait_for_conditions(self, name: str, *conditions: Condition) -> Object:
        """Returns the job when these are its conditions, in this order."""
        return await eventually(lambda: self.job(name), lambda seen: conditions_of(seen) == list(conditions))

    async def wait_for_end(self, name: str, condition: str) -> Object:
        """Returns the job when the last of its conditions has this type and is true."""

        def last_is(seen: Object) -> bool:
            shown = conditions_of(seen)
            return bool(shown) and shown[-1][:2] == (condition, "True")

        return await eventually(lambda: self.job(name), last_is)

    async def wait_until_running(self, name: str) -> Object:
        """Returns the job when its status counts all pods as active."""

        def all_active(seen: Object) -> bool:
            specs = seen["spec"][self.kind.replicas_field]
            statuses = (seen.get("status") or {}).get("replicaStatuses") or {}
            active = {role: statuses.get(role, {}).get("active", 0) for role in specs}
            return active == {role: spec.get("replicas", 1) for role, spec in specs.items()}

        return await eventually(lambda: self.job(name), all_active)

    async def wait_for_children(self, job: str, names: Collection[str]) -> None:
        """Waits until the job has exactly these pods, and Services of the same names if its kind has Services."""
        await eventually(lambda: self.pods(job), lambda pods: pods.keys() == set(names))
        if any(role.has_service for role in self.kind.roles):
            await eventually(lambda: self.services(job), lambda services: services.keys() == set(names))

    async def wait_for_counts(self, name: str, role: str, **numbers: int) -> Object:
        """Returns the status when it has these numbers for the role."""

        def counted(status: Object) -> bool:
            counts: Object = (status.get("replicaStatuses") or {}).get(role, {})
            return numbers.items() <= counts.items()

        return await eventually(lambda: self.status(name), counted)

    async def wait_for_replacement(self, job: str, pod: Object) -> Object:
        """Returns the pod that has replaced this one under the same name."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        pods = await eventually(
            lambda: self.pods(job), lambda pods: name in pods and pods[name]["metadata"]["uid"] != uid
        )
        return pods[name]

    async def wait_until_deleted(self, name: str) -> None:
        await eventually(lambda: self.exists(name), lambda there: not there)

    async def wait_for_events(self, name: str, *events: Event) -> None:
        """Waits until the job has all of these events."""
        await eventually(lambda: self.events(name), lambda seen: seen >= set(events))

    async def wait_for_only_events(self, name: str, *events: Event) -> None:
        """Waits until the job has these events, and asserts that it has no others."""
        await self.wait_for_events(name, *events)
        await self.settle()
        assert await self.events(name) == set(events)

    async def settle(self) -> None:
        """Waits until the operator has seen the present state of all jobs and has no work left."""
        marker = f"marker-{next(_numbers)}"
        await self.submit(JobBuilder(marker, kind=self.kind).replica(self.kind.roles[0].name).suspend())
        await eventually(lambda: self.conditions(marker), bool)
        await self.client.delete(self.kind.resource, marker, namespace=self.namespace)
        await settled(self.operator, counts=False)

    @asynccontextmanager
    async def history(self, created: Object) -> AsyncIterator[list[list[Condition]]]:
        """All lists of conditions that the job has had within the block, in order."""
        shown: list[list[Condition]] = []
        name, version = created["metadata"]["name"], created["metadata"]["resourceVersion"]

        async def follow() -> None:
            watch = self.client.watch(
                self.kind.resource,
                namespace=self.namespace,
                field_selector=f"metadata.name={name}",
                resource_version=version,
            )
            async for event in watch:
                conditions = conditions_of(event.object)
                if conditions and conditions not in shown[-1:]:
                    shown.append(conditions)

        async def last_shown() -> list[list[Condition]]:
            return shown[-1:]

        async with in_background(follow()):
            yield shown
            last = await self.conditions(name)
            await eventually(last_shown, lambda seen: seen == [last])  # the watch may lag behind the read

    async def _children(self, resource: Resource, job: str) -> dict[str, Object]:
        found = await self.client.list(resource, namespace=self.namespace, label_selector=f"{JOB_NAME}={job}")
        return {item["metadata"]["name"]: item for item in found.items}


async def submit(client: Client, builder: JobBuilder) -> Object:
    return await client.create(builder.kind.resource, builder.manifest())


def conditions_of(job: Object) -> list[Condition]:
    found: Sequence[Object] = (job.get("status") or {}).get("conditions") or ()
    return [(one["type"], one["status"], one["reason"], one["message"]) for one in found]


def environment(pod: Object, container: int = 0) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][container]["env"]}


def owner_reference(job: Object) -> Object:
    """The only owner reference of a child of this job."""
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
