"""pod.json and the other files that the agent and the supervisor of a pod share, in the directory of the pod.

For types alone: supervisors do not import it, and start as quickly. A field that an earlier version did not write is
not required, so that pods of that version keep running: `tests/cluster/node/test_upgrade.py` has theirs.
"""

from typing import NotRequired, TypedDict

from trainwright.cluster.linux.security_json import SecurityJson

# pod.json, written by the agent: what the supervisor runs.


class OwnerJson(TypedDict):
    """The controller of a pod, such as a job: what the pod leaves on the node is kept as long as it exists."""

    apiVersion: str
    kind: str
    name: str
    uid: str


class BackoffJson(TypedDict):
    """Seconds, see `container_status.BACKOFF`."""

    initial: float
    limit: float
    reset: float


class MemoryVolumeJson(TypedDict):
    path: str
    size: NotRequired[int | None]
    group: NotRequired[int | None]


class NfsVolumeJson(TypedDict):
    name: str
    path: str
    source: str
    options: str


class MountJson(TypedDict):
    source: str
    """On the host."""
    target: str
    readOnly: bool
    name: NotRequired[str]
    """The name of the volume."""
    volume: NotRequired[str]
    """The directory that the source must not leave."""
    hostPath: NotRequired[bool]
    """It is a path of the machine, unlike the files of the node."""


class LimitsJson(TypedDict, total=False):
    memory: int
    """Bytes."""
    cpuQuota: int
    """Microseconds per period."""
    cpuShares: int
    pids: int


class RootJson(TypedDict):
    """The files of a container that runs on an image."""

    layers: list[str]
    """Directories, the topmost first."""
    hostFiles: bool
    """They lie over the files of the host."""
    volumes: list[str]


class TcpJson(TypedDict):
    host: str
    port: int


class GrpcJson(TcpJson):
    service: str


class HttpJson(TcpJson):
    scheme: str
    path: str
    headers: list[list[str]]
    userAgent: str


class HandlerJson(TypedDict, total=False):
    """What a probe or a hook does; it has one of the keys."""

    exec: list[str]
    sleep: float
    tcp: TcpJson
    grpc: GrpcJson
    http: HttpJson
    error: str
    """Why it cannot be run."""


class ProbeJson(TypedDict):
    handler: HandlerJson
    delay: float
    period: float
    timeout: float
    success: int
    failure: int
    grace: NotRequired[float]


class TerminationMessageJson(TypedDict):
    file: str
    policy: str


class HooksJson(TypedDict, total=False):
    postStart: HandlerJson
    preStop: HandlerJson


class LifecycleJson(TypedDict):
    """How a container starts, is checked and ends."""

    image: NotRequired[str]
    terminationMessage: NotRequired[TerminationMessageJson]
    sidecar: NotRequired[bool]
    probes: NotRequired[dict[str, ProbeJson]]
    """By kind: startup, liveness, readiness."""
    hooks: NotRequired[HooksJson]


class ImageJson(TypedDict, total=False):
    """What the supervisor needs to know about the image of a container."""

    missingImage: bool
    """This machine does not have it: the container has the machine's files."""
    imageID: str
    root: RootJson
    stopSignal: int


class ContainerJson(LifecycleJson, ImageJson):
    name: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    mounts: list[MountJson]
    limits: NotRequired[LimitsJson]
    security: NotRequired[SecurityJson]
    stdin: NotRequired[bool]
    stdinOnce: NotRequired[bool]
    tty: NotRequired[bool]
    hostPaths: NotRequired[dict[str, str]]
    """At `plain`: paths of the container -> where they are on the host."""
    ports: NotRequired[list[int]]
    """The TCP ports that it declares."""
    gpus: NotRequired[list[str]]
    devices: NotRequired[list[str]]


class PodJson(TypedDict):
    uid: str
    namespace: str
    name: str
    labels: NotRequired[dict[str, str]]
    createdAt: NotRequired[str]
    owner: NotRequired[OwnerJson | None]
    address: str
    secondAddress: NotRequired[str]
    """For its sockets of IPv6 alone."""
    ownPorts: NotRequired[bool]
    sandbox: str
    ownUsers: bool
    """It needs a user namespace."""
    asRoot: NotRequired[bool]
    """Its user is root there."""
    hostname: str
    grace: float
    restartPolicy: str
    backoff: BackoffJson
    memoryVolumes: list[MemoryVolumeJson]
    nfsProgram: NotRequired[str | None]
    nfsVolumes: NotRequired[list[NfsVolumeJson]]
    memoryLimit: NotRequired[int | None]
    privateHomes: NotRequired[list[str]]
    """Directories of the host in whose place it has its own."""
    openFiles: NotRequired[int | None]
    deadlineAt: NotRequired[float | None]
    """When activeDeadlineSeconds end, in seconds since the epoch."""
    logLimit: NotRequired[int]
    cgroups: NotRequired[dict[str, str]]
    """Directories by controller; none without limits."""
    hidden: list[str]
    """Directories of the host that it does not see."""
    initContainers: list[ContainerJson]
    containers: list[ContainerJson]


# state.json, written by the supervisor: the status of the containers. Times have nanoseconds.


class WaitingState(TypedDict):
    reason: str
    message: NotRequired[str]


class RunningState(TypedDict):
    startedAt: str


class TerminatedState(TypedDict):
    exitCode: int
    reason: str
    startedAt: str
    finishedAt: str
    signal: NotRequired[int]
    message: NotRequired[str]


class FinishedRun(TerminatedState):
    number: int
    """0 is the first run."""


class ContainerState(TypedDict, total=False):
    """As in the API: it has one of the keys, or none in the place of `last`."""

    waiting: WaitingState
    running: RunningState
    terminated: TerminatedState


class ContainerStatus(TypedDict):
    name: str
    restarts: int
    state: ContainerState
    last: ContainerState
    runs: NotRequired[list[FinishedRun]]
    sidecar: NotRequired[bool]
    """An init container with the restart policy Always."""
    started: NotRequired[bool]
    ready: NotRequired[bool]
    """Both of containers with probes."""
    disrupted: NotRequired[bool]
    """The last run ended with the node."""
    disruptions: NotRequired[int]
    """How many restarts followed such an end."""
    process: NotRequired[int]
    """The pid of the last run on the host."""


class PodState(TypedDict):
    sandbox: NotRequired[str]
    finished: bool
    """No container runs or will run again."""
    reason: str
    message: str
    listening: NotRequired[list[int]]
    """The TCP ports on which programs of the pod listen at its address."""
    initContainers: list[ContainerStatus]
    containers: list[ContainerStatus]


# The smaller files.


class EventJson(TypedDict):
    """One of the events in events.json, written by the supervisor."""

    number: int
    type: str
    reason: str
    message: str
    at: str
    container: str
    """Empty for an event about the pod."""
    init: bool
    port: NotRequired[int]
    """Which is in use."""


class IdentityJson(TypedDict):
    """supervisor.json: the process of the supervisor."""

    pid: int
    startTicks: int
    bootId: str


class StopJson(TypedDict, total=False):
    """stop.json, written by the agent: stop the pod."""

    grace: float
    reason: str
    """With which the pod fails; none of its containers is started again."""
    message: str
    shutdown: IdentityJson | None
    """The cluster is stopped: which supervisor is meant. The pod starts again with the next agent."""
