"""The images of this node's pods: which one a container gets, pulling and unpacking it in the background.

A pod waits until all its images are there; its status and events say for what, as those of the kubelet do.
"""

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.formats import FormatError
from trainwright.cluster.images.layers.unpacked import UnpackedLayers, unpack_command
from trainwright.cluster.images.mappings import ImageMappings
from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError
from trainwright.cluster.images.store import Image, ImageStore
from trainwright.cluster.node.pods.config.container_image import ContainerImage, is_host_image
from trainwright.cluster.node.pods.config.pod_context import PodWarning
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.pods.images import image_policy
from trainwright.cluster.node.pods.images.builtin_images import BuiltinImages
from trainwright.cluster.node.pods.images.image_files import copy_layers, read_accounts, read_image
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_recorder import PodRecorder
from trainwright.cluster.node.pods.pod_status import field_path
from trainwright.cluster.node.referenced_objects import secret_data
from trainwright.cluster.node.supervisor.containers.container_status import CONTAINER_CREATING
from trainwright.cluster.node.supervisor.sandbox.sandbox import PLAIN
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.resources import SECRETS

if TYPE_CHECKING:
    from trainwright.cluster.images.registry.credentials import Keyrings

_UNPACK_RETRY_SECONDS = 10.0
_CONFIGURED_SECONDS = 10.0
"""How long it is remembered whether the user has logged in to a registry."""
_SECRET_KEYS = (".dockerconfigjson", ".dockercfg")


@dataclass(slots=True)
class _Pull:
    """One image for one pod."""

    task: asyncio.Task[Image] | None = None
    began: float = 0.0
    failures: int = 0
    cause: str = ""
    retry_at: float = 0.0
    backing_off: bool = False
    image: Image | None = None


@dataclass(slots=True)
class _Unpacking:
    process: asyncio.Task[str]
    waiting: set[str] = field(default_factory=set)
    ended_at: float = 0.0


class PodImages:
    def __init__(
        self,
        client: Client,
        node: NodeConfig,
        recorder: PodRecorder,
        *,
        enqueue: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`enqueue` is called with the uid of a pod whose image may be ready."""
        self.store = ImageStore(node.images)
        self._client = client
        self._settings = node.settings
        self._recorder = recorder
        self._home = node.home
        self._enqueue = enqueue
        self._can_mount = node.sandbox.level != PLAIN
        self._clock = clock
        self._layers = UnpackedLayers(self.store)
        self._builtin = BuiltinImages(node.directory, can_mount=self._can_mount)
        self._mappings = ImageMappings(node.images)
        self._pulls: dict[tuple[str, str], _Pull] = {}
        """By uid of the pod and name of the image."""
        self._unpacking: dict[str, _Unpacking] = {}
        """By digest of the manifest."""
        self._configured: dict[str, tuple[bool, float]] = {}
        self._ids: dict[str, dict[str, str]] = {}
        self._over_host: dict[str, list[str]] = {}
        self._chosen: dict[tuple[str, str], Image] = {}
        """Images that pods wait for or have, by uid of the pod and name of the image."""
        self._pinned: dict[str, list[str]] = {}
        """Manifests, by uid of the pod."""
        self._pulled: dict[str, set[str]] = {}
        """Containers whose image was pulled for this pod, by uid."""

    async def prepare(
        self, pod: Object, directory: PodDirectory
    ) -> dict[str, ContainerImage] | tuple[WaitingReason, ...]:
        """The image of every container; those that are missing run on this machine's files. Or why the pod waits."""
        # From the moment at which an image is found until the pod's pin holds it, no command may delete its layers.
        with contextlib.ExitStack() as leases:
            try:
                if self.store.exists:
                    await asyncio.to_thread(leases.enter_context, self.store.lease())
                return await self._prepare(pod, directory)
            except StoreError as error:
                return (WaitingReason(reason="ImageInspectError", message=str(error)),)

    async def _prepare(
        self, pod: Object, directory: PodDirectory
    ) -> dict[str, ContainerImage] | tuple[WaitingReason, ...]:
        found: dict[str, ContainerImage] = {}
        waiting: list[WaitingReason] = []
        used: list[Image] = []
        for kind in ("initContainers", "containers"):
            for spec in pod["spec"].get(kind) or []:
                if is_host_image(str(spec.get("image") or "")):
                    continue
                try:
                    image = await self._prepare_container(pod, spec, field_path(kind, spec["name"]), used, directory)
                except StoreError as error:
                    image = WaitingReason(reason="ImageInspectError", message=str(error), container=spec["name"])
                if isinstance(image, WaitingReason):
                    waiting.append(image)
                else:
                    found[spec["name"]] = image
        uid = pod["metadata"]["uid"]
        await self._pin(pod, used, directory)
        if waiting:
            return tuple(waiting)
        self._ids[uid] = {name: image.image_id for name, image in found.items() if image.image_id}
        self._over_host[uid] = [name for name, image in found.items() if image.image_id and image.host_files]
        self._pulled[uid] = {name for name, image in found.items() if image.pulled}
        return found

    async def _pin(self, pod: Object, used: list[Image], directory: PodDirectory) -> None:
        """Also while the pod waits for one of them to be unpacked."""
        uid, name = pod["metadata"]["uid"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        digests = list(dict.fromkeys(image.descriptor.digest for image in used))
        if digests and digests != self._pinned.get(uid):
            directory.create()
            await asyncio.to_thread(self.store.pin, f"pod-{uid}", digests, directory.path, name)
            self._pinned[uid] = digests

    def ids(self, uid: str, directory: PodDirectory) -> Mapping[str, str]:
        """The imageID of every container that has an image, by name."""
        if uid not in self._ids:
            config = directory.runtime_config
            containers = [*config["initContainers"], *config["containers"]] if config is not None else []
            self._ids[uid] = {
                container["name"]: container["imageID"] for container in containers if "imageID" in container
            }
        return self._ids[uid]

    def pulled_for(self, uid: str) -> frozenset[str]:
        """Containers whose image was pulled for this pod: their event has been recorded."""
        return frozenset(self._pulled.get(uid, ()))

    def over_host_files(self, uid: str) -> list[str]:
        """Containers whose image lies over this machine's files, of a pod that this agent has started."""
        return self._over_host.get(uid, [])

    def forget(self, uid: str) -> None:
        """The pod has been deleted."""
        self._over_host.pop(uid, None)
        self._ids.pop(uid, None)
        self._pulled.pop(uid, None)
        self._pinned.pop(uid, None)
        for key in [key for key in self._chosen if key[0] == uid]:
            del self._chosen[key]
        for key in [key for key in self._pulls if key[0] == uid]:
            pull = self._pulls.pop(key)
            if pull.task is not None:
                pull.task.cancel()
        with contextlib.suppress(OSError):
            self.store.unpin(f"pod-{uid}")

    async def close(self) -> None:
        tasks: list[asyncio.Task[Image] | asyncio.Task[str]] = [
            unpacking.process for unpacking in self._unpacking.values()
        ]
        tasks += [pull.task for pull in self._pulls.values() if pull.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # One container

    async def _prepare_container(
        self, pod: Object, spec: Object, path: str, used: list[Image], directory: PodDirectory
    ) -> ContainerImage | WaitingReason:
        name, container = str(spec.get("image") or ""), str(spec["name"])
        if (builtin := await self._builtin.find(name, container)) is not None:
            return builtin
        mapping = self._mappings.find(name)
        if mapping is not None and mapping.python:
            return ContainerImage(python=mapping.python)
        wanted = (mapping.image if mapping is not None else "") or name
        try:
            reference = ImageReference.parse(wanted)
        except InvalidReferenceError as error:
            if self._settings.unknown_images == "host" and not wanted:
                return ContainerImage(unknown=True)
            waiting = image_policy.invalid_name(wanted, container, error.reason)
            self._record_failure(pod, path, "InspectFailed", waiting)
            return waiting
        # A name that is removed or moved does not change the image of a pod that is starting.
        found = self._chosen.get((pod["metadata"]["uid"], str(reference))) or self.store.find(reference)
        policy = str(spec.get("imagePullPolicy") or "IfNotPresent")
        undecided = found is None or policy == "Always"
        may_pull = undecided and policy != "Never" and await self._may_pull(pod, reference)
        unknown = self._settings.unknown_images
        action = image_policy.decide(policy, found=found is not None, may_pull=may_pull, unknown=unknown)
        if self._is_pulled_for(pod["metadata"]["uid"], wanted):
            action = "pull"  # its end is not recorded yet, although the store has the image
        if action == "host":
            return ContainerImage(unknown=True)
        if action in {"never", "refuse"}:
            waiting = (image_policy.never_pull if action == "never" else image_policy.refused)(wanted, container)
            self._record_failure(pod, path, waiting.reason, waiting)
            return waiting
        pulled = False
        if action == "pull":
            outcome = await self._pull(pod, path, container, wanted, reference, found)
            if isinstance(outcome, WaitingReason):
                return outcome
            found, pulled = outcome
        elif policy == "Always":
            text = f"imagePullPolicy of container {container} is Always, but no registry is configured for {wanted}"
            self._recorder.warn(pod, PodWarning("ImageNotPulled", f"{text}: the image of this machine is used"))
        assert found is not None  # noqa: S101 - stored or pulled
        return await self._unpacked(pod, container, found, reference, used, directory, pulled=pulled)

    async def _unpacked(
        self,
        pod: Object,
        container: str,
        image: Image,
        reference: ImageReference,
        used: list[Image],
        directory: PodDirectory,
        *,
        pulled: bool,
    ) -> ContainerImage | WaitingReason:
        described = replace(read_image(image, reference), pulled=pulled)
        if not self._can_mount and described.has_own_files:
            return described
        used.append(image)
        self._chosen[(pod["metadata"]["uid"], str(reference))] = image
        layers = self._layers.find(image)
        if layers is None:
            return self._unpack(pod, container, image)
        self._unpacking.pop(image.descriptor.digest, None)
        if not self._can_mount:
            target = directory.path / "images" / container
            copies = await asyncio.to_thread(copy_layers, layers, target)
            inside = target / described.working_directory.strip("/")
            if described.working_directory and inside.is_dir():  # programs are often named relative to it
                described = replace(described, working_directory=str(inside))
            return replace(described, copies=copies)
        return await asyncio.to_thread(read_accounts, described, layers, self._home)

    # Pulling

    async def _may_pull(self, pod: Object, reference: ImageReference) -> bool:
        """A registry is configured if the user has logged in to it, the pod has a secret for it, or a flag names it."""
        if self._settings.unknown_images == "pull" or reference.registry in self._settings.registries:
            return True
        if pod["spec"].get("imagePullSecrets"):
            return await self._has_credentials(pod, reference)
        known, until = self._configured.get(reference.name, (False, 0.0))
        if until < self._clock():  # a credential helper may take a while
            known = await self._has_credentials(pod, reference)
            self._configured[reference.name] = (known, self._clock() + _CONFIGURED_SECONDS)
        return known

    async def _has_credentials(self, pod: Object, reference: ImageReference) -> bool:
        from trainwright.cluster.images.registry.credentials import CredentialsError  # most pods need no registry

        keyring = await self._keyring(pod, warn=False)
        try:
            return bool(await asyncio.to_thread(keyring.lookup, reference))
        except CredentialsError:
            return False

    def _is_pulled_for(self, uid: str, name: str) -> bool:
        pull = self._pulls.get((uid, name))
        return pull is not None and (pull.task is not None or pull.image is not None)

    async def _keyring(self, pod: Object, *, warn: bool) -> "Keyrings":
        from trainwright.cluster.images.registry.credentials import CredentialsError, DockerConfig, Keyrings

        sources, missing = [], []
        for entry in pod["spec"].get("imagePullSecrets") or []:
            name = str(entry.get("name") or "")
            try:
                secret = await self._client.get(SECRETS, name, namespace=pod["metadata"]["namespace"])
                sources.append(DockerConfig.of_pull_secret(_secret_value(secret)))
            except (NotFound, CredentialsError, ValueError):
                missing.append(name)
        with contextlib.suppress(CredentialsError):
            sources.append(DockerConfig.of_user())
        if missing and warn:
            text = (
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); attempting to pull the image may"
            )
            self._recorder.warn(pod, PodWarning("FailedToRetrieveImagePullSecret", f"{text} not succeed."))
        return Keyrings(sources)

    async def _pull(
        self, pod: Object, path: str, container: str, name: str, reference: ImageReference, found: Image | None
    ) -> tuple[Image, bool] | WaitingReason:
        uid = pod["metadata"]["uid"]
        pull = self._pulls.setdefault((uid, name), _Pull())
        if pull.image is not None and found is not None:
            return pull.image, True
        pull.image = None  # removed before the pod could pin it
        if pull.task is None:
            if pull.retry_at > self._clock():
                return self._back_off(pod, path, container, name, pull)
            await self._begin(pod, path, name, reference, pull)
        assert pull.task is not None  # noqa: S101 - begun just now
        if not pull.task.done():
            return WaitingReason(reason=CONTAINER_CREATING, message="", container=container)
        return self._finish(pod, path, container, name, pull, found)

    async def _begin(self, pod: Object, path: str, name: str, reference: ImageReference, pull: _Pull) -> None:
        from trainwright.cluster.images.registry.pull import pull_image  # most nodes never pull

        keyring = await self._keyring(pod, warn=True)
        self._recorder.record_about(pod, path, "Pulling", f'Pulling image "{name}"')
        pull.began, pull.backing_off = self._clock(), False
        pull.task = asyncio.create_task(pull_image(self.store, reference, credentials=keyring))
        uid = pod["metadata"]["uid"]
        pull.task.add_done_callback(lambda _: self._enqueue(uid))

    def _finish(
        self, pod: Object, path: str, container: str, name: str, pull: _Pull, found: Image | None
    ) -> tuple[Image, bool] | WaitingReason:
        from trainwright.cluster.images.registry.credentials import CredentialsError
        from trainwright.cluster.images.registry.errors import RegistryError, UnreachableRegistryError

        task, pull.task = pull.task, None
        assert task is not None  # noqa: S101 - the caller has looked
        try:
            pull.image = task.result()
        except UnreachableRegistryError as error:
            pull.cause = str(error)
            if found is not None:
                text = f'Failed to pull image "{name}": {error}; the image of this machine is used'
                self._recorder.warn(pod, PodWarning("ImageNotPulled", text))
                pull.image = found
                return found, False
        except (RegistryError, FormatError, StoreError, CredentialsError, OSError) as error:
            pull.cause = str(error)
        if pull.image is None:
            pull.failures += 1
            pull.retry_at = self._clock() + image_policy.back_off(pull.failures)
            self._record(pod, path, "Failed", f'Failed to pull image "{name}": {pull.cause}')
            self._record(pod, path, "Failed", f"Error: {image_policy.ERR_IMAGE_PULL}")
            return image_policy.pull_failed(container, pull.cause)
        size = sum(layer.size for layer in pull.image.manifest.layers)
        text = image_policy.pulled_message(name, self._clock() - pull.began, size)
        self._recorder.record_about(pod, path, "Pulled", text)
        return pull.image, True

    def _back_off(self, pod: Object, path: str, container: str, name: str, pull: _Pull) -> WaitingReason:
        if not pull.backing_off:
            pull.backing_off = True
            self._recorder.record_about(pod, path, "BackOff", f'Back-off pulling image "{name}"')
            self._record(pod, path, "Failed", f"Error: {image_policy.IMAGE_PULL_BACK_OFF}")
        return image_policy.backing_off(name, container, pull.cause)

    def _record_failure(self, pod: Object, path: str, reason: str, waiting: WaitingReason) -> None:
        """Once for each pod."""
        key = (pod["metadata"]["uid"], f"{path} {waiting.reason}")
        if key not in self._pulls:
            self._pulls[key] = _Pull()
            self._record(pod, path, reason, waiting.message)
            self._record(pod, path, "Failed", f"Error: {waiting.reason}")

    def _record(self, pod: Object, path: str, reason: str, message: str) -> None:
        self._recorder.record_about(pod, path, reason, message, type_="Warning")

    # Unpacking

    def _unpack(self, pod: Object, container: str, image: Image) -> WaitingReason:
        digest = image.descriptor.digest
        running = self._unpacking.get(digest)
        if running is not None and running.process.done():
            if not running.ended_at:
                running.ended_at = self._clock()
            if self._clock() - running.ended_at >= _UNPACK_RETRY_SECONDS:
                running = None
        if running is None:
            running = _Unpacking(asyncio.create_task(self._run_unpacking(image)))
            self._unpacking[digest] = running
            running.process.add_done_callback(functools.partial(self._on_unpacked, running))
        if running.process.done():
            message = running.process.result() or "the layers were removed"
            return WaitingReason(reason="CreateContainerError", message=message, container=container)
        running.waiting.add(pod["metadata"]["uid"])
        return WaitingReason(reason=CONTAINER_CREATING, message="", container=container)

    def _on_unpacked(self, unpacking: _Unpacking, _: asyncio.Task[str]) -> None:
        for uid in unpacking.waiting:
            self._enqueue(uid)

    async def _run_unpacking(self, image: Image) -> str:
        """Why it failed; empty if it did not. In a process of its own, because it takes seconds of CPU."""
        command = unpack_command(self.store, image)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise
        try:
            answer = msgspec.json.decode(output)
        except msgspec.DecodeError:
            lines = errors.decode(errors="replace").strip().splitlines()
            return f"unpacking the image failed: {lines[-1] if lines else f'exit code {process.returncode}'}"
        return str(answer.get("error", ""))


def _secret_value(secret: Object) -> bytes:
    """Raises ValueError if the secret has no credentials, or if they are not base64."""
    data = secret_data(secret)
    for key in _SECRET_KEYS:
        if key in data:
            return data[key]
    raise ValueError("no docker config in the secret")
