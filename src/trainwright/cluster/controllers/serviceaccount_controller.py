"""The service account controller: creates the ServiceAccount `default` in each namespace."""

import logging

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

log = logging.getLogger(__name__)

_DEFAULT = "default"


class _Named(View, frozen=True):
    metadata: ObjectMeta


class ServiceAccountController:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._namespaces = Store[_Named](metadata=lambda one: one.metadata)
        self._accounts = Store[_Named](metadata=lambda one: one.metadata)

        reflectors = [
            Reflector(client, NAMESPACES, self._namespaces, convert=_Named, on_change=self._namespace_changed),
            Reflector(
                client,
                SERVICE_ACCOUNTS,
                self._accounts,
                convert=_Named,
                field_selector=f"metadata.name={_DEFAULT}",
                on_change=self._account_changed,
            ),
        ]
        self._controller: Controller[str] = Controller(
            self._reconcile, log=log, reflectors=reflectors, workers=2, retry_log_level=logging.DEBUG
        )

    async def run(self) -> None:
        await self._controller.run()

    def _namespace_changed(self, _before: _Named | None, after: _Named | None) -> None:
        if after is not None:
            self._controller.queue.add(after.metadata.name)

    def _account_changed(self, before: _Named | None, after: _Named | None) -> None:
        if after is None and before is not None:
            self._controller.queue.add(before.metadata.namespace)

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.terminating or self._accounts.get(f"{name}/{_DEFAULT}") is not None:
            return
        try:
            await self._client.create(SERVICE_ACCOUNTS, default_account(name))
        except (AlreadyExists, NotFound):
            return  # it exists, or the namespace was deleted


def default_account(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": _DEFAULT, "namespace": namespace},
    }
