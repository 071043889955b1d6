"""The part of a runtime config that describes one container: command, environment, working directory and mounts."""

import posixpath
from collections.abc import Mapping

from trainwright.cluster.linux.security_json import SecurityJson
from trainwright.cluster.node.devices.nvidia import driver_mounts
from trainwright.cluster.node.network.hosts import hostname, replace_names
from trainwright.cluster.node.pod_fields import service_account_of
from trainwright.cluster.node.pods.config.container_image import DEFAULT_PATH, arguments_of
from trainwright.cluster.node.pods.config.container_resources import (
    container_limits,
    cpu_of,
    omp_threads,
    processes_per_pod,
)
from trainwright.cluster.node.pods.config.environment import (
    MAX_PATH_BYTES,
    check_program,
    expand,
    expand_arguments,
    make_environment,
)
from trainwright.cluster.node.pods.config.lifecycle_config import lifecycle_settings, termination_mount
from trainwright.cluster.node.pods.config.pod_context import (
    HOSTNAME_FILE,
    PodContext,
    PodWarning,
    image_of,
    installation,
    node_fields,
    pod_python,
)
from trainwright.cluster.node.referenced_objects import PodConfigError, ReferencedObjects
from trainwright.cluster.node.supervisor.containers.host_paths import replace_path
from trainwright.cluster.node.supervisor.pod_json import ContainerJson, ImageJson, MountJson
from trainwright.cluster.node.supervisor.sandbox.sandbox import OVERLAY, PRIVATE_DIRECTORIES
from trainwright.cluster.node.volumes.sources import Volume
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.node_annotations import DIRECTORY, REPLICAS

_SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108
_RESOLVER = "/etc/resolv.conf"
_OPEN_MPI = {
    # Pods have loopback addresses, which Open MPI does not use by itself.
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    # It refuses to run as root, as many pods do.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Each pod is a host for it: it would bind the first process of every pod to the same core (4 and 5).
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    # Processes of all pods share the cores: one that waits must not take a core from the others.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # This component of version 5 hangs if several hosts are one machine.
    "OMPI_MCA_coll": "^han",
}


class ContainerConfigBuilder:
    def __init__(
        self,
        pod: Object,
        spec: Object,
        context: PodContext,
        objects: ReferencedObjects,
        volumes: Mapping[str, Volume],
        security: SecurityJson,
        *,
        sidecar: bool,
        home: str | None = None,
    ) -> None:
        """`home` is that of the user in the image; None on the files of this machine."""
        self._pod = pod
        self._spec = spec
        self._context = context
        self._objects = objects
        self._volumes = volumes
        self._sidecar = sidecar
        self._annotations = pod["metadata"].get("annotations") or {}
        self._overlay = context.node.sandbox.level == OVERLAY
        self._security = security
        self._host_paths: dict[str, str] = {}
        self._replaced: set[str] = set()
        self._image = image_of(spec, context)
        self._home = home
        self._gpus = (context.gpus or {}).get(spec["name"], ())
        self.warnings: list[PodWarning] = []
        self.program_bytes = 0

    def build(self) -> ContainerJson:
        # Values of variables may contain mount paths, and subPathExpr may contain variables: paths come first.
        message = termination_mount(self._spec, self._context.directory)
        self._find_host_paths(message)
        variables = make_environment(
            self._spec,
            pod=self._pod,
            objects=self._objects,
            node=node_fields(self._context),
            services=self._context.service_variables,
            adapt=self._adapt_value,
        )
        mounts = [self._mount(mount, variables) for mount in self._spec.get("volumeMounts") or []]
        if self._overlay and all(mount["target"] != message["target"] for mount in mounts):
            mounts.append(message)
        argv, cwd = self._argv(variables), self._working_directory()
        environment = {
            **self._base_environment(argv, variables),
            **self._image_environment(),
            **self._gpu_environment(),
            **self._context.service_variables,
            **variables,
        }
        self.program_bytes = check_program(self._spec["name"], argv, environment)
        if not self._overlay:
            self._warn_about_unused_paths()
        return {
            "name": self._spec["name"],
            "argv": argv,
            "limits": container_limits(self._spec) if self._context.node.cgroups else {},
            "security": self._security,
            "env": environment,
            "cwd": cwd,
            "mounts": [*self._node_mounts(mounts, environment), *mounts] if self._overlay else mounts,
            "stdin": bool(self._spec.get("stdin")),
            "stdinOnce": bool(self._spec.get("stdinOnce")),
            "tty": bool(self._spec.get("tty")),
            "hostPaths": {} if self._overlay else self._host_paths,
            "ports": self._declared_ports(),
            "gpus": [gpu.uuid for gpu in self._gpus],
            "devices": sorted({node for gpu in self._gpus for node in gpu.nodes}),
            **self._root(),
            **lifecycle_settings(
                self._spec,
                address=self._context.address,
                directory=self._context.directory,
                sidecar=self._sidecar,
                variables=variables,
                adapt=self._adapt_path,
            ),
        }

    def _find_host_paths(self, message: MountJson) -> None:
        """Paths of the container that are elsewhere on this machine; `message` mounts its termination message."""
        if not self._overlay:
            self._host_paths[message["target"]] = message["source"]
            self._replaced.add(message["target"])
        self._host_paths |= self._image.copies
        self._replaced |= set(self._image.copies)
        for mount in self._spec.get("volumeMounts") or []:
            if not self._overlay and not mount.get("subPathExpr"):
                self._host_paths[mount["mountPath"].rstrip("/")] = self._source(mount, {})

    def _argv(self, variables: Mapping[str, str]) -> list[str]:
        of_image, of_manifest = arguments_of(self._spec, self._image)
        expanded = expand_arguments(of_manifest, variables, container=self._spec["name"], field="command and args")
        return [self._adapt_path(argument) for argument in (*of_image, *expanded)]

    def _working_directory(self) -> str:
        shared = self._annotations.get(DIRECTORY) if self._image.host_files else None
        chosen = self._spec.get("workingDir") or self._image.working_directory or shared or "/"
        return self._adapt_path(posixpath.join("/", chosen))

    def _root(self) -> ImageJson:
        """What the supervisor needs to know about the image."""
        image = self._image
        if not image.image_id:
            return {"missingImage": True} if image.unknown else {}
        return {
            "imageID": image.image_id,
            "root": {"layers": list(image.layers), "hostFiles": image.host_files, "volumes": list(image.volumes)},
            "stopSignal": image.stop_signal,
        }

    def _image_environment(self) -> dict[str, str]:
        """ENV of the image. Over the host's files its own directories come first in PATH, then the pod's Python."""
        environment = {name: self._adapt_value(value) for name, value in self._image.environment.items()}
        if self._image.host_files and "PATH" in environment:
            base = self._host_path().split(":")
            own = [entry for entry in environment["PATH"].split(":") if entry and entry not in base]
            environment["PATH"] = ":".join([*own, *base])
        return environment

    def _host_path(self) -> str:
        return f"{posixpath.dirname(self._python())}:{DEFAULT_PATH}"

    def _python(self) -> str:
        """That of a container on the files of this machine."""
        return self._image.python or pod_python(self._annotations, self._context)

    def _declared_ports(self) -> list[int]:
        """The TCP ports that the container declares."""
        ports = self._spec.get("ports") or ()
        return [port["containerPort"] for port in ports if port.get("protocol", "TCP") == "TCP"]

    def _base_environment(self, argv: list[str], variables: Mapping[str, str]) -> dict[str, str]:
        """The variables that an image would define.

        GLOO_SOCKET_IFNAME: pods have loopback addresses, and gloo does not choose that interface by itself.
        """
        if self._image.host_files:
            same_user = self._security.get("user") in {None, self._context.node.user}
            of_files = {
                "PATH": self._host_path(),
                "HOME": self._context.node.home if same_user else "/",
                "LANG": "C.UTF-8",
            }
            if (prefix := installation(self._python())) in self._context.open_mpis:
                of_files["OPAL_PREFIX"] = prefix
        else:
            of_files = {"PATH": DEFAULT_PATH, "HOME": self._home or "/"}
        return {
            **of_files,
            "HOSTNAME": hostname(self._pod),
            "OMP_NUM_THREADS": str(self._threads(argv, variables)),
            "GLOO_SOCKET_IFNAME": "lo",
            **_OPEN_MPI,
        }

    def _gpu_environment(self) -> dict[str, str]:
        """NCCL_HOSTID: pods have host names of their own, but their GPUs are in one machine and can copy directly."""
        if self._context.gpus is None:
            return {}
        uuids = ",".join(gpu.uuid for gpu in self._gpus)
        if not uuids:
            return {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
        return {
            "CUDA_VISIBLE_DEVICES": uuids,
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "NCCL_HOSTID": self._context.node.machine.boot_id,
            "NCCL_SOCKET_IFNAME": "lo",
        }

    def _threads(self, argv: list[str], variables: Mapping[str, str]) -> int:
        return omp_threads(
            cores=int(self._context.node.machine.allocatable.get("cpu", 1)),
            replicas=parse_decimal(self._annotations.get(REPLICAS, "")),
            processes=processes_per_pod(argv, variables),
            cpu=cpu_of(self._spec),
        )

    def _mount(self, mount: Object, variables: Mapping[str, str]) -> MountJson:
        read_only = bool(mount.get("readOnly")) or self._volume(mount).read_only
        target = posixpath.normpath(posixpath.join("/", mount["mountPath"]))
        if target == "/":
            raise PodConfigError(
                f"volumeMounts {mount['name']}: mountPath / would hide the root file system of the container"
            )
        volume = self._volume(mount)
        return {
            "name": mount["name"],
            "source": self._source(mount, variables),
            "volume": volume.path,
            "hostPath": volume.host_path_type is not None and not volume.provisioned,
            "target": target,
            "readOnly": read_only,
        }

    def _source(self, mount: Object, variables: Mapping[str, str]) -> str:
        what = f'container "{self._spec["name"]}": volumeMounts {mount["name"]}: subPathExpr'
        expression = mount.get("subPathExpr") or ""
        below = mount.get("subPath") or expand(expression, variables, what=what, limit=MAX_PATH_BYTES)
        if below and (below.startswith("/") or ".." in below.split("/")):
            raise PodConfigError(f"volumeMounts {mount['name']}: subPath {below!r} leads out of the volume")
        return posixpath.normpath(posixpath.join(self._volume(mount).path, below))

    def _volume(self, mount: Object) -> Volume:
        volume = self._volumes.get(mount["name"])
        if volume is None:
            raise PodConfigError(f'volumeMounts: no volume is named "{mount["name"]}"')
        return volume

    def _node_mounts(self, volumes: list[MountJson], environment: Mapping[str, str]) -> list[MountJson]:
        """The hosts file, and what the pod shares with this machine: the user's home, the directory of the manifest and
        the installation of its Python. The rest of the machine's files is below private layers.

        A volume that is mounted at or above the home replaces it, as it replaces the files of an image.
        """
        mounts: list[MountJson] = [{"source": self._context.hosts_file, "target": "/etc/hosts", "readOnly": True}]
        if self._gpus:  # NCCL copies between the GPUs of different pods through it
            mounts.append({"source": self._context.shared_memory, "target": _SHARED_MEMORY, "readOnly": False})
        for image in self._context.images.values():
            mounts += [
                {"source": source, "target": path, "readOnly": True} for path, source in image.pod_mounts.items()
            ]
        if self._image.has_own_files:
            return [*mounts, *self._mounts_of_image(volumes, environment)]
        home = None if self._context.private_homes else self._context.node.shared_home
        if home and not any(_contains(volume["target"], home) for volume in volumes) and not self._image.covers_home:
            mounts.append(_of_machine(home))
        private = (*PRIVATE_DIRECTORIES, *self._context.private_homes)
        for prefix in self._context.installations.get(self._python(), (installation(self._python()),)):
            hides = any(_contains(path, prefix) and path != prefix for path in private)
            if hides and not (home and _contains(home, prefix)):
                mounts.append(_of_machine(prefix, read_only=True))
        if shared := self._annotations.get(DIRECTORY):
            mounts.append(_of_machine(posixpath.normpath(shared)))
        return mounts

    def _mounts_of_image(self, volumes: list[MountJson], environment: Mapping[str, str]) -> list[MountJson]:
        """What an image with files of its own gets from the node: the host name, the resolver, and the driver of its
        GPUs."""
        name = posixpath.join(self._context.directory, HOSTNAME_FILE)
        found: list[MountJson] = [{"source": name, "target": "/etc/hostname", "readOnly": True}]
        if self._context.has_resolver:
            found.append(_of_machine(_RESOLVER, read_only=True))
        if self._gpus:
            found += driver_mounts(
                self._context.node.driver, environment=environment, library_directory=self._image.library_directory
            )
        taken = {volume["target"] for volume in volumes}
        return [mount for mount in found if mount["target"] not in taken]

    # At `plain` there are no mounts and no hosts file: host paths and addresses replace paths and names in values.

    def _adapt_value(self, value: str) -> str:
        return value if self._overlay else self._adapt_path(replace_names(value, self._context.names))

    def _adapt_path(self, text: str) -> str:
        for path in sorted(self._host_paths, key=len, reverse=True):
            replaced = replace_path(text, path, self._host_paths[path])
            if replaced != text:
                self._replaced.add(path)
                text = replaced
        return text

    def _warn_about_unused_paths(self) -> None:
        for path, source in self._host_paths.items():
            # Every pod has the token of the default service account; few programs use it.
            unused = path == _SERVICE_ACCOUNT_PATH and service_account_of(self._pod) == "default"
            if path not in self._replaced and path != source and not unused:
                self.warnings.append(
                    PodWarning(
                        "MountPathNotHonoured",
                        f"container {self._spec['name']}: at sandbox plain nothing can be mounted at {path}; the "
                        f"volume is at {source}, and neither command, args nor env contain the mount path",
                    )
                )


def _of_machine(path: str, *, read_only: bool = False) -> MountJson:
    """A mount of the machine's own file or directory at its own path."""
    return {"source": path, "target": path, "readOnly": read_only, "hostPath": True}


def _contains(directory: str, path: str) -> bool:
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")
