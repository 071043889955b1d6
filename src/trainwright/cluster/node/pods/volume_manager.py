"""The volume manager of the node: reads the objects that pods refer to, and keeps files in their volumes up to date.

One watch for all ConfigMaps and one for all Secrets serve every pod; of the objects only the versions are kept. A
change enqueues the pods that refer to the object.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from trainwright.cluster.node.pod_fields import NodeFields
from trainwright.cluster.node.pods.service_account_tokens import ServiceAccountTokens
from trainwright.cluster.node.referenced_objects import (
    PodConfigError,
    ReferencedObjects,
    References,
    all_references,
    file_references,
    token_source,
)
from trainwright.cluster.node.volumes.atomic_writer import read_file, write_files
from trainwright.cluster.node.volumes.files import FILE_VOLUMES
from trainwright.cluster.node.volumes.sources import Volume, VolumeContext, mount_failure, plan_volumes
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, SECRETS, Resource

ROOT_CA = "kube-root-ca.crt"
_RETRY_SECONDS = 10.0
_LONGEST_TOKEN = 65_536
_WATCHED = (CONFIG_MAPS, SECRETS)


class _Version(View, frozen=True):
    """The version of a ConfigMap or Secret. That of an immutable one is not needed."""

    metadata: ObjectMeta
    immutable: bool | None = None


class Refresh(NamedTuple):
    """What came of the refresh of a pod's files."""

    due_in: float | None = None
    """Seconds until the next one; None if only a change calls for it."""
    failure: str = ""
    """Why the files are as before."""


class VolumeManager:
    """`on_change` is called with the key of a changed object, one of `object_keys`."""

    def __init__(
        self,
        client: Client,
        *,
        on_change: Callable[[str], None],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._clock = clock
        self._tokens = ServiceAccountTokens(client, clock=clock)
        self._fingerprints: dict[str, object] = {}
        """By uid of the pod: what the content of its files was made of."""
        self._root_ca: dict[str, Object] = {}
        """By namespace: nearly every pod has it in its volumes."""
        self._versions: dict[Resource, Store[_Version]] = {}
        self.reflectors = []
        for resource in _WATCHED:
            store: Store[_Version] = Store()

            def changed(before: _Version | None, after: _Version | None, resource: Resource = resource) -> None:
                metadata = (after or before or _NOTHING).metadata
                on_change(_key(resource, metadata.namespace, metadata.name))

            self._versions[resource] = store
            self.reflectors.append(Reflector(client, resource, store, convert=_Version, on_change=changed))

    async def objects_for_start(self, pod: Object) -> ReferencedObjects:
        """All objects that the pod refers to; raises PodConfigError if a token cannot be had."""
        self._fingerprints[pod["metadata"]["uid"]] = self._fingerprint(pod)
        return await self._read(pod, all_references(pod))

    async def refresh(
        self, pod: Object, node: NodeFields, directory: Path, owner: tuple[int | None, int | None]
    ) -> Refresh:
        """Writes the files of a running pod again if what they depend on has changed. `directory` has its volumes;
        `owner` is the user of its tokens and the group of its volumes."""
        uid = pod["metadata"]["uid"]
        fingerprint = self._fingerprint(pod)
        if fingerprint is None:
            return Refresh()
        if uid not in self._fingerprints:
            await asyncio.to_thread(self._adopt_tokens, pod, directory)
        elif self._fingerprints[uid] == fingerprint and (due_in := self._due_in(uid)) != 0:
            return Refresh(due_in)
        try:
            objects = await self._read(pod, file_references(pod))
        except PodConfigError as error:  # no token
            return Refresh(_RETRY_SECONDS, str(error))
        self._fingerprints[uid] = fingerprint
        try:
            context = VolumeContext(pod=pod, objects=objects, node=node, owner=owner[0], group=owner[1])
            volumes = plan_volumes(context, directory=str(directory), kinds=FILE_VOLUMES)
        except PodConfigError as error:
            return Refresh(self._due_in(uid), str(error))
        failure = await asyncio.to_thread(_write_all, volumes.values())
        return Refresh(_RETRY_SECONDS if failure else self._due_in(uid), failure)

    def forget(self, uid: str) -> None:
        self._fingerprints.pop(uid, None)
        self._tokens.forget(uid)

    def _due_in(self, uid: str) -> float | None:
        due = self._tokens.next_renewal(uid)
        return None if due is None else max(0.0, (due - self._clock()).total_seconds())

    def _fingerprint(self, pod: Object) -> object | None:
        """Equal as long as the files stay the same; None if the pod has no files."""
        metadata = pod["metadata"]
        volumes = pod["spec"].get("volumes") or []
        if not any(kind in volume for volume in volumes for kind in FILE_VOLUMES):
            return None
        names = file_references(pod)
        versions = [
            self._version(resource, metadata["namespace"], name)
            for resource, found in ((CONFIG_MAPS, names.config_maps), (SECRETS, names.secrets))
            for name in sorted(found)
        ]
        fields = (metadata.get("labels"), metadata.get("annotations")) if _has_fields(volumes) else None
        return versions, fields

    def _version(self, resource: Resource, namespace: str, name: str) -> str:
        found = self._versions[resource].get(f"{namespace}/{name}")
        if found is None:
            return ""
        return "immutable" if found.immutable else found.metadata.resource_version

    def _adopt_tokens(self, pod: Object, directory: Path) -> None:
        for volume in pod["spec"].get("volumes") or []:
            for source in (volume.get("projected") or {}).get("sources") or []:
                if token := source.get("serviceAccountToken"):
                    text = read_file(directory / volume["name"], token["path"], limit=_LONGEST_TOKEN)
                    self._tokens.adopt(pod, token_source(token), (text or b"").decode(errors="replace"))

    # Reading

    async def _read(self, pod: Object, references: References) -> ReferencedObjects:
        namespace = pod["metadata"]["namespace"]
        tokens = sorted(references.tokens)
        config_maps, secrets, claims, texts = await asyncio.gather(
            self._config_maps(references.config_maps, namespace),
            self._get_existing(SECRETS, references.secrets, namespace),
            self._get_existing(PERSISTENT_VOLUME_CLAIMS, references.claims, namespace),
            asyncio.gather(*(self._tokens.get(pod, source) for source in tokens)),
        )
        found = ReferencedObjects(
            namespace=namespace,
            config_maps=config_maps,
            secrets=secrets,
            claims=claims,
            tokens=dict(zip(tokens, texts, strict=True)),
        )
        bound = {claim["spec"].get("volumeName") for claim in claims.values()} - {None, ""}
        return replace(found, volumes=await self._get_existing(PERSISTENT_VOLUMES, bound, None)) if bound else found

    async def _config_maps(self, names: Iterable[str], namespace: str) -> dict[str, Object]:
        cached = self._root_ca.get(namespace)
        if cached is None or self._version(CONFIG_MAPS, namespace, ROOT_CA) != cached["metadata"]["resourceVersion"]:
            found = await self._get_existing(CONFIG_MAPS, names, namespace)
            if ROOT_CA in found:
                self._root_ca[namespace] = found[ROOT_CA]
            return found
        return {ROOT_CA: cached, **await self._get_existing(CONFIG_MAPS, set(names) - {ROOT_CA}, namespace)}

    async def _get_existing(self, resource: Resource, names: Iterable[str], namespace: str | None) -> dict[str, Object]:
        """By name."""
        ordered = sorted(names)
        answers = await asyncio.gather(
            *(self._client.get(resource, name, namespace=namespace) for name in ordered), return_exceptions=True
        )
        found = {}
        for name, answer in zip(ordered, answers, strict=True):
            if isinstance(answer, NotFound):
                continue
            if isinstance(answer, BaseException):
                raise answer
            found[name] = answer
        return found


def object_keys(pod: Object) -> list[str]:
    """The ConfigMaps and Secrets that the pod refers to, for an index of pods."""
    namespace, references = pod["metadata"]["namespace"], all_references(pod)
    return [
        _key(resource, namespace, name)
        for resource, names in ((CONFIG_MAPS, references.config_maps), (SECRETS, references.secrets))
        for name in names
    ]


def _key(resource: Resource, namespace: str, name: str) -> str:
    return f"{resource.plural}/{namespace}/{name}"


def _has_fields(volumes: Iterable[Object]) -> bool:
    sources: list[Any] = list(volumes)
    for volume in tuple(sources):
        sources += (volume.get("projected") or {}).get("sources") or []
    return any(source.get("downwardAPI") for source in sources)


def _write_all(volumes: Iterable[Volume]) -> str:
    for volume in volumes:
        try:
            write_files(Path(volume.path), volume.files or {}, group=volume.group)
        except OSError as error:
            return mount_failure(volume.name, f"{error.filename}: {error.strerror}")
    return ""


_NOTHING = _Version(metadata=ObjectMeta())
