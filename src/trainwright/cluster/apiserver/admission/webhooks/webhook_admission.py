"""Calls the admission webhooks that a write concerns: mutating ones in turn, validating ones at the same time."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.admission.webhooks.admission_review import (
    InvalidResponseError,
    Verdict,
    denied,
    read_verdict,
    review_request,
    review_version,
)
from trainwright.cluster.apiserver.admission.webhooks.registered_webhooks import (
    DELETE,
    AdmissionRequest,
    Invocation,
    Operation,
    WebhookSource,
    selectors_match,
)
from trainwright.cluster.apiserver.admission.webhooks.webhook_client import WebhookCallError, WebhookClient
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.cluster.apiserver.writes.json_patch import PatchError, json_patch
from trainwright.objects import Object
from trainwright.objects.resources import MUTATING_WEBHOOK_CONFIGURATIONS, NAMESPACES, VALIDATING_WEBHOOK_CONFIGURATIONS

log = logging.getLogger(__name__)

Defaulter = Callable[[Object], Object]
"""Adds defaults to an object that a webhook has changed."""


class WebhookAdmission:
    """`versions_of` lists the served versions of a resource, for webhooks that want any of them."""

    def __init__(
        self,
        store: ObjectStore,
        client: WebhookClient,
        versions_of: Callable[[ResourceType], Iterable[ResourceType]],
    ) -> None:
        self._store = store
        self._client = client
        self._mutating = WebhookSource(store, MUTATING_WEBHOOK_CONFIGURATIONS, versions_of)
        self._validating = WebhookSource(store, VALIDATING_WEBHOOK_CONFIGURATIONS, versions_of)

    async def close(self) -> None:
        await self._client.close()

    def concerns(self, operation: Operation) -> bool:
        """Whether a webhook may have to be called; selectors are not considered."""
        return bool(self._mutating.invocations(operation) or self._validating.invocations(operation))

    async def mutate(self, asked: AdmissionRequest, default: Defaulter) -> Object | None:
        """The new object after the patches of all mutating webhooks; raises a StatusError if one rejects it.

        A webhook that wants it is called a second time if another one has changed the object after it.
        """
        invocations = self._mutating.invocations(asked.operation)
        called: list[Invocation] = []
        again: list[Invocation] = []
        for invocation in invocations:
            if not self._selected(invocation, asked):
                continue
            changed, new = await self._mutate_once(invocation, asked, default)
            asked = replace(asked, new=new)
            if changed:
                again += [earlier for earlier in called if earlier not in again]
            if invocation.webhook.is_reinvoked:
                called.append(invocation)
        for invocation in (invocation for invocation in invocations if invocation in again):
            if self._selected(invocation, asked):
                _, new = await self._mutate_once(invocation, asked, default)
                asked = replace(asked, new=new)
        return asked.new

    async def validate(self, asked: AdmissionRequest) -> None:
        """Raises the first rejection, after all webhooks have answered."""
        wanted = [
            invocation
            for invocation in self._validating.invocations(asked.operation)
            if self._selected(invocation, asked)
        ]
        if not wanted:
            return
        found = await asyncio.gather(*(self._ask(invocation, asked, mutating=False) for invocation in wanted))
        for invocation, verdict in zip(wanted, found, strict=True):
            if isinstance(verdict, StatusError):
                raise verdict
            if verdict is not None and not verdict.allowed:
                raise denied(invocation.webhook.name, verdict.status)

    def _selected(self, invocation: Invocation, asked: AdmissionRequest) -> bool:
        return selectors_match(invocation.webhook, self._namespace_labels(asked), asked.new, asked.old)

    def _namespace_labels(self, asked: AdmissionRequest) -> dict[str, str] | None:
        """The labels of the write's namespace; None for objects that are in no namespace."""
        operation = asked.operation
        if operation.kind.resource == NAMESPACES and not operation.subresource and operation.verb != DELETE:
            return ((asked.new or {}).get("metadata") or {}).get("labels") or {}
        if not operation.namespace:
            return None
        stored = self._store.get(NAMESPACES.qualified_plural, "", operation.namespace)
        if stored is None:
            raise errors.not_found(NAMESPACES, operation.namespace)
        return stored.obj["metadata"].get("labels") or {}

    async def _mutate_once(
        self, invocation: Invocation, asked: AdmissionRequest, default: Defaulter
    ) -> tuple[bool, Object | None]:
        """Whether the webhook has changed the object, and the object."""
        new = asked.new
        verdict = await self._ask(invocation, asked, mutating=True)
        name = invocation.webhook.name
        if isinstance(verdict, StatusError):
            raise verdict
        if verdict is None or (verdict.allowed and not verdict.patch):
            return False, new
        if not verdict.allowed:
            raise denied(name, verdict.status)
        if new is None:
            why = (
                f'admission webhook "{name}" attempted to modify the object, which is not supported for this operation'
            )
            raise errors.internal(why)
        version = new.get("apiVersion")
        try:
            patched = json_patch(new | {"apiVersion": invocation.kind.resource.api_version}, verdict.patch)
        except PatchError as error:
            raise errors.internal(str(error)) from error
        if not isinstance(patched, dict):
            raise errors.internal(f'admission webhook "{name}" returned a patch that leaves no object')
        changed = default(patched | {"apiVersion": version})
        return changed != new, changed

    async def _ask(
        self, invocation: Invocation, asked: AdmissionRequest, *, mutating: bool
    ) -> Verdict | StatusError | None:
        """The verdict; an error if the webhook could not be asked; None if such a failure is to be ignored."""
        webhook = invocation.webhook
        if asked.operation.dry_run and not webhook.allows_dry_run:
            return errors.bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        uid = str(uuid.uuid4())
        try:
            version = review_version(invocation)
            body = msgspec.json.encode(review_request(uid, asked, invocation))
            verdict = read_verdict(await self._client.post(webhook, body), uid, version, mutating=mutating)
        except WebhookCallError as error:
            failure = f"failed to call webhook: {error}"
        except InvalidResponseError as error:
            failure = f"received invalid webhook response: {error}"
        else:
            asked.warnings.extend(verdict.warnings)
            return verdict
        message = f'failed calling webhook "{webhook.name}": {failure}'
        if webhook.ignores_failures:
            log.warning("%s; the request is admitted, as failurePolicy demands", message)
            return None
        return errors.internal(message)
