"""The service account controller: creates the ServiceAccount `default` in each namespace, and deletes the token
Secrets of deleted accounts."""

import logging
from contextlib import suppress

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.metadata import AnyObject, ObjectMeta
from trainwright.objects.resources import NAMESPACES, SECRETS, SERVICE_ACCOUNTS

log = logging.getLogger(__name__)

_DEFAULT = "default"
_ACCOUNT_NAME, _ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


class ServiceAccountController:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._namespaces = Store[AnyObject]()
        self._accounts = Store[AnyObject]()
        self._secrets = Store[AnyObject]()

        reflectors = [
            Reflector(client, NAMESPACES, self._namespaces, convert=AnyObject, on_change=self._namespace_changed),
            Reflector(client, SERVICE_ACCOUNTS, self._accounts, convert=AnyObject, on_change=self._account_changed),
            Reflector(
                client,
                SECRETS,
                self._secrets,
                convert=AnyObject,
                field_selector="type=kubernetes.io/service-account-token",
                on_change=self._secret_changed,
            ),
        ]
        self.controller: Controller[str] = Controller(self._reconcile, log=log, reflectors=reflectors, workers=2)

    def _namespace_changed(self, _before: AnyObject | None, after: AnyObject | None) -> None:
        if after is not None:
            self.controller.queue.add(after.metadata.name)

    def _account_changed(self, before: AnyObject | None, after: AnyObject | None) -> None:
        if after is None and before is not None:
            self.controller.queue.add(before.metadata.namespace)

    def _secret_changed(self, _before: AnyObject | None, after: AnyObject | None) -> None:
        if after is not None:
            self.controller.queue.add(after.metadata.namespace)

    async def _reconcile(self, name: str) -> None:
        for secret in self._secrets.all():
            if secret.metadata.namespace == name and await self._is_orphan(secret.metadata):
                with suppress(NotFound):
                    await self._client.delete(SECRETS, secret.metadata.name, namespace=name)
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.terminating or self._accounts.get(f"{name}/{_DEFAULT}") is not None:
            return
        try:
            await self._client.create(SERVICE_ACCOUNTS, default_account(name))
        except (AlreadyExists, NotFound):
            return  # it exists, or the namespace was deleted

    async def _is_orphan(self, secret: ObjectMeta) -> bool:
        """Whether the account of a token Secret is gone, also if another one has its name now."""
        name, uid = secret.annotations.get(_ACCOUNT_NAME, ""), secret.annotations.get(_ACCOUNT_UID)
        account = self._accounts.get(f"{secret.namespace}/{name}")
        if account is not None and uid in {None, account.metadata.uid}:
            return False
        try:  # the cache of accounts may be older than that of Secrets
            live = await self._client.get(SERVICE_ACCOUNTS, name, namespace=secret.namespace)
        except NotFound:
            return True
        return uid not in {None, live["metadata"]["uid"]}


def default_account(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _DEFAULT, "namespace": namespace},
    }
