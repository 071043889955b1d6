"""The job that runs a Python program: one pod per worker, as `python train.py` in the caller's directory. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.api.annotations import RESTART_SCOPE
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.api.kinds.tensorflow import ALL_WORKERS
from trainwright.cli.errors import CommandError
from trainwright.cli.program.source import SUFFIX, Program
from trainwright.objects import Object

FRAMEWORKS: Mapping[str, Kind] = {kind.framework: kind for kind in KINDS.values()}
GPU = "nvidia.com/gpu"
_MAX_NAME = 40
"""So that names of pods and of the objects that belong to the job stay below 63 characters."""
_TORCHRUN = ("-m", "torch.distributed.run")
_MPI4PY = ("-m", "mpi4py")
"""Ends all processes after an exception in one of them. Without it that one waits for the others at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """How the jobs of a framework differ. `group_…` is for several workers."""

    env: tuple[Object, ...] = ()
    group_env: tuple[Object, ...] = ()
    group_prefix: tuple[str, ...] = ()
    group_launcher: tuple[str, ...] = ()
    group_spec: Mapping[str, str] = field(default_factory=dict)
    starter: tuple[str, ...] = ()
    """The command, before the number of processes, by which the first role starts the program in the Workers."""
    run_policy: Mapping[str, str] = field(default_factory=dict)


_SHAPES = {
    "pytorch": _Shape(
        # What torchrun would add to the variables of a PyTorchJob: each pod has one process.
        env=({"name": "LOCAL_RANK", "value": "0"}, {"name": "LOCAL_WORLD_SIZE", "value": "1"}),
        # Lightning reads it. Variables of `env` cannot refer to RANK, which the operator adds behind them.
        group_prefix=("env", "NODE_RANK=$(RANK)"),
    ),
    "tensorflow": _Shape(
        # The operator sets this variable for the other frameworks.
        env=({"name": "PYTHONUNBUFFERED", "value": "1"},),
        # Otherwise the job ends as soon as worker 0 has finished.
        group_spec={"successPolicy": ALL_WORKERS},
    ),
    "paddle": _Shape(
        # The launcher's own address; otherwise it looks up the hostname, which may have another one.
        group_env=({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},),
        group_launcher=("-m", "paddle.distributed.launch", "--log_dir=/tmp/paddle-$(POD_IP)"),
    ),
    "mpi": _Shape(
        # Images often run as root, which Open MPI refuses otherwise. Other MPIs do not know its flag for that.
        env=tuple({"name": f"OMPI_ALLOW_RUN_AS_ROOT{end}", "value": "1"} for end in ("", "_CONFIRM")),
        starter=("mpirun", "-n"),
        run_policy={"cleanPodPolicy": "Running"},  # workers do not end by themselves
    ),
}


@dataclass(frozen=True, slots=True)
class Mount:
    """`source` is a path of the node, or the name of a PersistentVolumeClaim."""

    source: str
    target: str
    read_only: bool = False
    is_claim: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What the flags of `run train.py` ask for."""

    program: Program
    framework: str
    name: str
    image: str
    script: str
    """The program's path in the pod; the module's name for `-m`."""
    python: str = "python3"
    workers: int = 1
    starts_processes: bool = False
    """The program starts the processes of a node itself: it must not believe that a launcher has done it."""
    uses_mpi4py: bool = False
    nproc: str | None = None
    """Processes per pod, or `auto`; None: one, without torchrun."""
    gpus: int = 0
    max_restarts: int = 1
    workdir: str | None = None
    mounts: tuple[Mount, ...] = ()
    host_network: bool = False
    code: str | None = None
    """The ConfigMap with the program, where the node does not have the caller's files."""

    @property
    def uses_torchrun(self) -> bool:
        return FRAMEWORKS[self.framework] is PYTORCH and self.nproc not in {None, "1"}


def job_name(program: Program) -> str:
    """`train-model` for train_model.py: a name that Kubernetes accepts for the job and its Services."""
    text = program.name if program.is_module else program.name.rsplit("/", 1)[-1].removesuffix(SUFFIX)
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"job-{name}".strip("-")
    return name[:_MAX_NAME].rstrip("-")


def make_job(request: JobRequest) -> Object:
    kind = FRAMEWORKS[request.framework]
    shape = _SHAPES.get(kind.framework, _Shape())
    spec: Object = {
        # Without a limit a program with a bug would restart for ever.
        "runPolicy": {"backoffLimit": request.max_restarts + 1 if request.max_restarts else 0, **shape.run_policy},
        kind.replicas_field: {
            role: {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": pod}}
            for role, (count, pod) in _replicas(request, kind, shape).items()
        },
    }
    if request.uses_torchrun:
        spec["nprocPerNode"] = request.nproc
    if request.workers > 1:
        spec |= shape.group_spec
    if shape.starter:
        spec["slotsPerWorker"] = _slots(request)
    elif request.nproc not in {None, "1"} and not request.uses_torchrun:
        raise CommandError(f"--nproc starts torchrun in the pods, which {kind.with_article} cannot use: use --workers")
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": {"name": request.name, "annotations": {RESTART_SCOPE: "group"}},
        "spec": spec,
    }


def _replicas(request: JobRequest, kind: Kind, shape: _Shape) -> dict[str, tuple[int, Object]]:
    """Number and pods of each role: the first worker is the Master of kinds that must have one."""
    first = kind.roles[0]
    if shape.starter:
        return {first.name: (1, _starting_pod(request, shape)), "Worker": (request.workers, _waiting_pod(request))}
    if first.exactly != 1:
        return {"Worker": (request.workers, _pod(request, kind, shape))}
    replicas = {first.name: (1, _pod(request, kind, shape))}
    if request.workers > 1:
        replicas["Worker"] = (request.workers - 1, _pod(request, kind, shape))
    return replicas


def _slots(request: JobRequest) -> int:
    if request.nproc == "auto":
        raise CommandError("--nproc auto is for torchrun: write the number of processes that mpirun starts in each pod")
    return int(request.nproc or 1)


def _starting_pod(request: JobRequest, shape: _Shape) -> Object:
    processes = str(request.workers * _slots(request))
    container: Object = {
        "name": "launcher",
        "image": request.image,
        "command": [*shape.starter, processes, *_program(request, _MPI4PY if request.uses_mpi4py else ())],
        **_arguments(request),
        "env": [dict(variable) for variable in shape.env],
    }
    return _pod_spec(request, container)


def _waiting_pod(request: JobRequest) -> Object:
    """A worker in which others start the program: it has no command, but what the program needs."""
    container: Object = {"name": "worker", "image": request.image}
    if request.gpus:
        container["resources"] = {"limits": {GPU: request.gpus}}
    return _pod_spec(request, container)


def _pod(request: JobRequest, kind: Kind, shape: _Shape) -> Object:
    group = request.workers > 1
    launcher = _TORCHRUN if request.uses_torchrun else shape.group_launcher if group else ()
    prefix = shape.group_prefix if group and not request.uses_torchrun else ()
    container: Object = {
        "name": kind.container,
        "image": request.image,
        "command": [*prefix, *_program(request, launcher)],
        **_arguments(request),
    }
    alone = request.uses_torchrun or request.starts_processes
    env = [] if alone else [dict(variable) for variable in shape.env]
    env += [dict(variable) for variable in shape.group_env] if group else []
    if env:
        container["env"] = env
    if request.gpus:
        container["resources"] = {"limits": {GPU: request.gpus}}
    return _pod_spec(request, container)


def _program(request: JobRequest, launcher: tuple[str, ...] = ()) -> list[str]:
    script = _literal(request.script)
    return [request.python, *launcher, *(["-m", script] if request.program.is_module else [script])]


def _arguments(request: JobRequest) -> Object:
    fields: Object = {}
    if request.program.arguments:
        fields["args"] = [_literal(word) for word in request.program.arguments]
    if request.workdir:
        fields["workingDir"] = request.workdir
    return fields


def _pod_spec(request: JobRequest, container: Object) -> Object:
    spec: Object = {"containers": [container]}
    volumes, mounts = _volumes(request)
    if volumes:
        container["volumeMounts"] = mounts
        spec["volumes"] = volumes
    if request.host_network:
        # With the default policy the names of the job's Services are not resolved on other clusters.
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return spec


def _volumes(request: JobRequest) -> tuple[list[Object], list[Object]]:
    volumes: list[Object] = []
    mounts: list[Object] = []
    if request.code:
        code, files = code_volumes(request.program, request.code, request.workdir or "/")
        volumes += code
        mounts += files
    for mount in request.mounts:
        name = _volume_name(mount, {volume["name"] for volume in volumes})
        if mount.is_claim:
            volumes.append({"name": name, "persistentVolumeClaim": {"claimName": mount.source}})
        else:
            volumes.append({"name": name, "hostPath": {"path": mount.source}})
        mounts.append({"name": name, "mountPath": mount.target, **({"readOnly": True} if mount.read_only else {})})
    return volumes, mounts


def _volume_name(mount: Mount, taken: set[str]) -> str:
    base = re.sub(r"[^a-z0-9]+", "-", mount.target.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-")[:50] or "files"
    names = [base, *(f"{base}-{number}" for number in range(2, len(taken) + 3))]
    return next(name for name in names if name not in taken)


def _literal(word: str) -> str:
    """Kubernetes expands $(NAME) in commands and arguments; $$ is a dollar sign."""
    return word.replace("$", "$$") if "$(" in word or "$$" in word else word


# The program as a ConfigMap


def code_volumes(program: Program, name: str, workdir: str) -> tuple[list[Object], list[Object]]:
    """A writable working directory with the program's files in it: a ConfigMap alone would be read-only."""
    files = sorted(program.sources())
    volumes: list[Object] = [{"name": "workdir", "emptyDir": {}}, {"name": "program", "configMap": {"name": name}}]
    mounts: list[Object] = [{"name": "workdir", "mountPath": workdir}]
    mounts += [
        {"name": "program", "mountPath": f"{workdir}/{path}", "subPath": code_key(str(path)), "readOnly": True}
        for path in files
    ]
    return volumes, mounts


def code_key(path: str) -> str:
    """The key of a file in the ConfigMap, which cannot contain a slash."""
    return path.replace("_", "__").replace("/", "_-") if "/" in path else path
