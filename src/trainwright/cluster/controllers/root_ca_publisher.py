"""The root CA publisher: keeps the ConfigMap `kube-root-ca.crt` in each namespace."""

import logging

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.metadata import AnyObject
from trainwright.objects.resources import CONFIG_MAPS, NAMESPACES

log = logging.getLogger(__name__)

_NAME = "kube-root-ca.crt"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


class RootCaPublisher:
    """`authority` is the certificate of the API server's CA."""

    def __init__(self, client: Client, authority: bytes) -> None:
        self._client = client
        self._authority = authority
        self._namespaces = Store[AnyObject]()
        self._bundles = Store[Object]()
        named = f"metadata.name={_NAME}"
        self.controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, NAMESPACES, self._namespaces, convert=AnyObject, on_change=self._namespace_changed),
                Reflector(client, CONFIG_MAPS, self._bundles, field_selector=named, on_change=self._bundle_changed),
            ],
            workers=2,
        )

    def _namespace_changed(self, _before: AnyObject | None, after: AnyObject | None) -> None:
        if after is not None:
            self.controller.queue.add(after.metadata.name)

    def _bundle_changed(self, before: Object | None, after: Object | None) -> None:
        for config_map in (before, after):
            if config_map is not None:
                self.controller.queue.add(config_map["metadata"]["namespace"])

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or namespace.metadata.terminating:
            return
        wanted, known = root_ca_bundle(self._authority, name), self._bundles.get(f"{name}/{_NAME}")
        try:
            if known is None:
                self._bundles.remember(await self._client.create(CONFIG_MAPS, wanted))
            elif known.get("data") != wanted["data"]:
                self._bundles.remember(await self._client.replace(CONFIG_MAPS, known | {"data": wanted["data"]}))
        except (AlreadyExists, NotFound):
            return  # it exists, or it or the namespace was deleted


def root_ca_bundle(authority: bytes, namespace: str) -> Object:
    annotations = {"kubernetes.io/description": _DESCRIPTION}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": _NAME, "namespace": namespace, "annotations": annotations},
        "data": {"ca.crt": authority.decode()},
    }
