"""From a Pod object to what its supervisor runs: argv, environment, directories, mounts. Decides, does nothing.

What cannot be run yet, or not here, is a problem that the pod shows while it waits; what cannot be honoured is a
notice that becomes a Warning event.
"""

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from trainwright.cluster.node.network.hosts import hostname, replace_names
from trainwright.cluster.node.pods.environment import expand, make_environment
from trainwright.cluster.node.pods.unsupported_fields import unsupported_fields
from trainwright.cluster.node.referenced_objects import PodConfigError, ReferencedObjects
from trainwright.cluster.node.supervisor import container_status
from trainwright.cluster.node.supervisor.sandbox import OVERLAY, PRIVATE_DIRECTORIES
from trainwright.cluster.node.volumes.sources import UnsupportedVolumeError, Volume, plan_volumes
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY, HOST_IMAGE, LISTEN_PORTS, PYTHON

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the node knows and the pod does not say."""

    node_name: str
    host_address: str
    address: str
    directory: str
    hosts_file: str
    level: str
    user_namespace: bool = False
    python: str
    home: str
    allocatable: Mapping[str, Fraction] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Name -> address of the peers that the pod may speak of; used where it has no /etc/hosts of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why the pod waits; shown on the named container, or on all."""

    reason: str
    message: str
    container: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    pod: dict[str, Any]
    """pod.json, see `supervisor`."""
    volumes: tuple[Volume, ...]
    python: str
    shared_directory: str | None
    notices: tuple[Notice, ...]


def resolve(pod: Object, facts: Facts, sources: ReferencedObjects) -> Resolved | tuple[Problem, ...]:
    try:
        volumes = plan_volumes(pod, directory=posixpath.join(facts.directory, "volumes"), objects=sources)
    except PodConfigError as missing:
        return (Problem(reason="FailedMount", message=str(missing)),)
    except UnsupportedVolumeError as unsupported:
        return (Problem(reason="UnsupportedVolume", message=str(unsupported)),)
    annotations = pod["metadata"].get("annotations") or {}
    ports = _listen_ports(annotations.get(LISTEN_PORTS, ""))
    problems = [*_annotation_problems(annotations, ports), *_container_problems(pod)]
    if problems:
        return tuple(problems)
    notices = list(_field_notices(pod, facts, annotations))
    containers: dict[str, list[dict[str, Any]]] = {"initContainers": [], "containers": []}
    for kind, specs in containers.items():
        for spec in pod["spec"].get(kind) or []:
            try:
                resolver = _ContainerResolver(pod, spec, facts, sources, volumes)
                specs.append(resolver.run())
                notices += resolver.notices
            except PodConfigError as missing:
                problems.append(
                    Problem(reason="CreateContainerConfigError", message=str(missing), container=spec["name"])
                )
    if problems:
        return tuple(problems)
    memory = [volume for volume in volumes.values() if volume.memory and facts.level == OVERLAY]
    return Resolved(
        pod={
            "uid": pod["metadata"]["uid"],
            "namespace": pod["metadata"]["namespace"],
            "name": pod["metadata"]["name"],
            "address": facts.address,
            "sandbox": facts.level,
            "ownUsers": facts.user_namespace,
            "hostname": hostname(pod),
            "grace": pod["spec"].get("terminationGracePeriodSeconds", 30),
            "restartPolicy": pod["spec"].get("restartPolicy") or container_status.ALWAYS,
            "listenPorts": ports or [],
            "backoff": container_status.BACKOFF,
            "memoryVolumes": [{"path": volume.path, "size": volume.size} for volume in memory],
            **containers,
        },
        volumes=tuple(volumes.values()),
        python=_python(annotations, facts),
        shared_directory=annotations.get(DIRECTORY),
        notices=tuple(notices),
    )


def is_host_image(image: str) -> bool:
    name = image.partition("@")[0]
    return name == HOST_IMAGE or name.startswith(f"{HOST_IMAGE}:")


class _ContainerResolver:
    def __init__(
        self, pod: Object, spec: Object, facts: Facts, sources: ReferencedObjects, volumes: Mapping[str, Volume]
    ) -> None:
        self._pod = pod
        self._spec = spec
        self._facts = facts
        self._sources = sources
        self._volumes = volumes
        self._annotations = pod["metadata"].get("annotations") or {}
        self._overlay = facts.level == OVERLAY
        self._moved: dict[str, str] = {}
        self._used: set[str] = set()
        self.notices: list[Notice] = []

    def run(self) -> dict[str, Any]:
        # Paths of volumes appear in the environment, and the environment in paths within volumes: the paths first.
        for mount in self._spec.get("volumeMounts") or []:
            if not self._overlay and not mount.get("subPathExpr"):
                self._moved[mount["mountPath"].rstrip("/")] = self._source(mount, {})
        variables = make_environment(
            self._spec,
            pod=self._pod,
            objects=self._sources,
            node=self._node_fields(),
            allocatable=self._facts.allocatable,
            adapt=self._adapt_value,
        )
        mounts = [self._mount(mount, variables) for mount in self._spec.get("volumeMounts") or []]
        words = [*self._spec["command"], *(self._spec.get("args") or [])]
        argv = [self._adapt_path(expand(word, variables)) for word in words]
        shared = self._annotations.get(DIRECTORY)
        cwd = self._adapt_path(self._spec.get("workingDir") or shared or "/")
        if not self._overlay:
            self._note_unused()
        return {
            "name": self._spec["name"],
            "argv": argv,
            "env": {**self._base_environment(), **variables},
            "cwd": cwd,
            "mounts": [*self._node_mounts(), *mounts] if self._overlay else mounts,
        }

    def _base_environment(self) -> dict[str, str]:
        """What an image would give. One thread per process: several on few cores wait for each other most of the time.

        The interface is named because the pod's address is one of loopback, where gloo does not look by itself.
        """
        python = _python(self._annotations, self._facts)
        return {
            "PATH": f"{posixpath.dirname(python)}:{_SYSTEM_PATH}",
            "HOME": self._facts.home,
            "HOSTNAME": hostname(self._pod),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }

    def _node_fields(self) -> dict[str, str]:
        return {
            "spec.nodeName": self._facts.node_name,
            "status.podIP": self._facts.address,
            "status.podIPs": self._facts.address,
            "status.hostIP": self._facts.host_address,
            "status.hostIPs": self._facts.host_address,
        }

    def _mount(self, mount: Object, variables: Mapping[str, str]) -> dict[str, Any]:
        read_only = bool(mount.get("readOnly")) or self._volume(mount).read_only
        target = posixpath.normpath(posixpath.join("/", mount["mountPath"]))
        if target == "/":
            raise PodConfigError(
                f"volumeMounts {mount['name']}: mountPath / would hide everything else of the container"
            )
        return {"source": self._source(mount, variables), "target": target, "readOnly": read_only}

    def _source(self, mount: Object, variables: Mapping[str, str]) -> str:
        below = mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)
        if below and (below.startswith("/") or ".." in below.split("/")):
            raise PodConfigError(f"volumeMounts {mount['name']}: subPath {below!r} leads out of the volume")
        return posixpath.normpath(posixpath.join(self._volume(mount).path, below))

    def _volume(self, mount: Object) -> Volume:
        volume = self._volumes.get(mount["name"])
        if volume is None:
            raise PodConfigError(f'volumeMounts: no volume is named "{mount["name"]}"')
        return volume

    def _node_mounts(self) -> list[dict[str, Any]]:
        mounts = [{"source": self._facts.hosts_file, "target": "/etc/hosts", "readOnly": True}]
        python = _python(self._annotations, self._facts)
        kept = {_installation(python): True}
        if shared := self._annotations.get(DIRECTORY):
            kept[posixpath.normpath(shared)] = False
        for path, only_if_hidden in kept.items():
            hidden = any(path.startswith(f"{private}/") for private in PRIVATE_DIRECTORIES)
            if hidden or not only_if_hidden:
                mounts.append({"source": path, "target": path, "readOnly": only_if_hidden})
        return mounts

    # At `plain` nothing can be mounted and no name is known: values carry the real paths and addresses instead.

    def _adapt_value(self, value: str) -> str:
        return value if self._overlay else self._adapt_path(replace_names(value, self._facts.names))

    def _adapt_path(self, text: str) -> str:
        for path in sorted(self._moved, key=len, reverse=True):
            replaced = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w.-])", _literally(self._moved[path]), text)
            if replaced != text:
                self._used.add(path)
                text = replaced
        return text

    def _note_unused(self) -> None:
        for path, source in self._moved.items():
            if path not in self._used and path != source:
                self.notices.append(
                    Notice(
                        "MountPathNotHonoured",
                        f"container {self._spec['name']}: at sandbox plain nothing can be mounted at {path}; the "
                        f"volume is at {source}, and neither command, args nor env name a path that could be changed",
                    )
                )


def _container_problems(pod: Object) -> list[Problem]:
    problems = []
    for kind in ("initContainers", "containers"):
        for index, spec in enumerate(pod["spec"].get(kind) or []):
            if not spec.get("command"):
                message = (
                    f"image {spec.get('image') or '(none)'} is not known to this node, so neither is its command: add "
                    f"`command:` to container {spec['name']}"
                )
                problems.append(Problem(reason="ImageHasNoCommand", message=message, container=spec["name"]))
            if kind == "initContainers" and spec.get("restartPolicy"):
                message = f"spec.initContainers[{index}].restartPolicy: this node has no sidecar containers"
                problems.append(Problem(reason="UnsupportedField", message=message, container=spec["name"]))
    return problems


def _annotation_problems(annotations: Mapping[str, str], ports: list[int] | None) -> list[Problem]:
    problems = []
    if ports is None:
        text = f"annotation {LISTEN_PORTS}: {annotations[LISTEN_PORTS]!r}: write 23456 or 80,443"
        problems.append(Problem(reason="InvalidAnnotation", message=text))
    for name in (PYTHON, DIRECTORY):
        path = annotations.get(name, "/absolute")
        if not path.startswith("/") or posixpath.normpath(path) == "/":
            text = f"annotation {name}: {path!r}: write an absolute path below /"
            problems.append(Problem(reason="InvalidAnnotation", message=text))
    return problems


def _field_notices(pod: Object, facts: Facts, annotations: Mapping[str, str]) -> list[Notice]:
    notices = []
    python = _python(annotations, facts)
    everybody = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    images = [str(spec.get("image") or "") for spec in everybody]
    unknown = sorted({image for image in images if not is_host_image(image)})
    if unknown:
        text = f"no image store: {', '.join(unknown)} runs on this machine's files, its Python is {python}"
        notices.append(Notice("UnknownImage", f"{text}. Name the image {HOST_IMAGE} to say that this is meant"))
    if fields := unsupported_fields(pod, facts.level):
        notices.append(Notice("FieldNotHonoured", f"without effect on this node: {', '.join(fields)}"))
    return notices


def _python(annotations: Mapping[str, str], facts: Facts) -> str:
    return annotations.get(PYTHON) or facts.python


def _installation(python: str) -> str:
    """The directory of a virtual environment or installation: PREFIX of PREFIX/bin/python."""
    return posixpath.dirname(posixpath.dirname(python))


def _listen_ports(text: str) -> list[int] | None:
    """None if the annotation cannot be read."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and 0 < int(part) < 65536 for part in parts):
        return None
    return [int(part) for part in parts]


def _literally(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text
