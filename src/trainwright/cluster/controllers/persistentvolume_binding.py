"""The rules of the persistent volume controller, as pure functions of claims and volumes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec

from trainwright.kube.controller.object_key import ObjectKey
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.quantities import QuantityError, parse_quantity
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from trainwright.objects.selectors import LabelSelector, read_label_selector

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
LEGACY_CLASS = "volume.beta.kubernetes.io/storage-class"
PROVISIONER = "trainwright.dev/host-path"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"


class ClaimSource(View, frozen=True):
    claim_name: str = ""


class PodVolume(View, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None


class ClaimReference(View, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(PERSISTENT_VOLUME_CLAIMS.kind, self.namespace, self.name)


class HostPath(View, frozen=True):
    path: str = ""


class VolumeSpec(View, frozen=True):
    capacity: dict[str, Any] = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ClaimReference | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    host_path: HostPath | None = None


class VolumeStatus(View, frozen=True):
    phase: str = ""


class PersistentVolume(View, frozen=True):
    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(PERSISTENT_VOLUMES.kind, "", self.metadata.name)

    @property
    def storage_class(self) -> str:
        return self.metadata.annotations.get(LEGACY_CLASS) or self.spec.storage_class_name

    @property
    def size(self) -> Fraction:
        """0 if the capacity is not a quantity."""
        try:
            return _size(self.spec.capacity)
        except QuantityError:
            return Fraction(0)


class ClaimResources(View, frozen=True):
    requests: dict[str, Any] = msgspec.field(default_factory=dict)


class ClaimSpec(View, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: ClaimResources = ClaimResources()
    storage_class_name: str | None = None
    selector: dict[str, Any] | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"


class ClaimStatus(View, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, Any] = msgspec.field(default_factory=dict)


class PersistentVolumeClaim(View, frozen=True):
    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(PERSISTENT_VOLUME_CLAIMS.kind, self.metadata.namespace, self.metadata.name)

    @property
    def storage_class(self) -> str | None:
        """None if not set; empty for volumes without a class."""
        return self.metadata.annotations.get(LEGACY_CLASS, self.spec.storage_class_name)

    @property
    def size(self) -> Fraction:
        return _size(self.spec.resources.requests)


class StorageClass(View, frozen=True):
    metadata: ObjectMeta
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"

    @property
    def name(self) -> str:
        return self.metadata.name


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do."""


@dataclass(frozen=True, slots=True)
class AssignClass:
    """The claim has no class: it gets the default one."""

    name: str


@dataclass(frozen=True, slots=True)
class Bind:
    """Claim and volume are bound, or half bound: the missing writes follow."""

    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class Provision:
    storage_class: StorageClass


@dataclass(frozen=True, slots=True)
class StayPending:
    """The claim waits; an event says why."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class MarkLost:
    """The volume of a bound claim was deleted, or belongs to another claim."""

    reason: str
    message: str


ClaimStep = Keep | AssignClass | Bind | Provision | StayPending | MarkLost


@dataclass(frozen=True, slots=True)
class SetPhase:
    phase: str


@dataclass(frozen=True, slots=True)
class Unbind:
    """The claim of the volume is bound to another volume."""


@dataclass(frozen=True, slots=True)
class Reclaim:
    """The claim was deleted: the volume and its data are deleted too."""


VolumeStep = Keep | SetPhase | Unbind | Reclaim


def decide_claim(
    claim: PersistentVolumeClaim,
    *,
    volumes: Mapping[str, PersistentVolume],
    classes: Mapping[str, StorageClass],
    has_consumer: bool,
) -> ClaimStep:
    """The next step for a claim. `has_consumer`: a pod uses it."""
    if BIND_COMPLETED in claim.metadata.annotations:
        return _decide_bound(claim, volumes)
    if claim.metadata.terminating:
        return Keep()
    if claim.spec.volume_name:
        return _decide_named(claim, volumes)
    if claim.storage_class is None and claim.spec.selector is None and (default := default_class(classes.values())):
        return AssignClass(default.name)
    try:
        found = best_volume(claim, volumes.values())
    except QuantityError as error:
        return StayPending("FailedBinding", f"spec.resources.requests.storage: {error}", warning=True)
    if found is not None and found.spec.claim_ref is not None:
        return Bind(found)  # pre-bound by an administrator
    return _decide_unnamed(claim, found, classes, has_consumer=has_consumer)


def decide_volume(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeStep:
    """The next step for a volume. `claim` is the object that its claimRef names, if it exists."""
    reference = volume.spec.claim_ref
    if reference is None or not reference.uid:
        return _phase(volume, "Available")
    if claim is None or claim.metadata.uid != reference.uid:
        if volume.status.phase not in {"Released", "Failed"}:
            return SetPhase("Released")
        wants_deletion = volume.spec.persistent_volume_reclaim_policy == "Delete" and not volume.metadata.terminating
        return Reclaim() if wants_deletion and volume.status.phase == "Released" else Keep()
    if claim.spec.volume_name == volume.name:
        return _phase(volume, "Bound")
    return Unbind() if claim.spec.volume_name else Keep()


def best_volume(claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> PersistentVolume | None:
    """The volume that is pre-bound to the claim, else the one with the fewest access modes, then the smallest."""
    wanted = claim.size
    selector = read_label_selector(claim.spec.selector) if claim.spec.selector is not None else LabelSelector()
    fitting = []
    for volume in volumes:
        if volume.metadata.terminating or _mismatch(claim, volume) or volume.size < wanted:
            continue
        if is_bound_to(volume, claim):
            return volume
        available = volume.status.phase == "Available" and volume.spec.claim_ref is None
        if (
            available
            and volume.storage_class == (claim.storage_class or "")
            and selector.matches(volume.metadata.labels)
        ):
            fitting.append(volume)
    return min(fitting, key=lambda volume: (len(set(volume.spec.access_modes)), volume.size, volume.name), default=None)


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True if the claimRef names this claim and has its uid or none, as in upstream's IsVolumeBoundToClaim."""
    reference = volume.spec.claim_ref
    return reference is not None and reference.key == claim.key and reference.uid in {"", claim.metadata.uid}


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The newest of several defaults, as upstream."""
    marked = [item for item in classes if item.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    return max(marked, key=lambda item: (item.metadata.creation_timestamp or "", item.name), default=None)


def claim_names(pod_name: str, volumes: Iterable[PodVolume]) -> list[str]:
    """The claims of a pod. The claim of an ephemeral volume is named after the pod and the volume."""
    names = []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            names.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            names.append(f"{pod_name}-{volume.name}")
    return [name for name in names if name]


def _decide_bound(claim: PersistentVolumeClaim, volumes: Mapping[str, PersistentVolume]) -> ClaimStep:
    volume = volumes.get(claim.spec.volume_name)
    if volume is None:
        return MarkLost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
    if volume.spec.claim_ref is None or is_bound_to(volume, claim):
        return Bind(volume)
    return MarkLost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")


def _decide_named(claim: PersistentVolumeClaim, volumes: Mapping[str, PersistentVolume]) -> ClaimStep:
    """For a claim with a volumeName. The volume may not exist yet, or belong to another claim."""
    name = claim.spec.volume_name
    volume = volumes.get(name)
    if volume is None:
        return StayPending("FailedBinding", f'volume "{name}" not found.')
    if is_bound_to(volume, claim):
        return Bind(volume)
    if volume.spec.claim_ref is not None:
        return StayPending("FailedBinding", f'volume "{name}" already bound to a different claim.')
    try:
        problem = _bind_error(claim, volume)
    except QuantityError as error:
        problem = str(error)
    if problem:
        return StayPending("VolumeMismatch", f'Cannot bind to requested volume "{name}": {problem}', warning=True)
    return Bind(volume)


def _decide_unnamed(
    claim: PersistentVolumeClaim,
    found: PersistentVolume | None,
    classes: Mapping[str, StorageClass],
    *,
    has_consumer: bool,
) -> ClaimStep:
    wanted = claim.storage_class or ""
    storage_class = classes.get(wanted)
    waits_for_pod = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
    if waits_for_pod and not has_consumer:
        return StayPending("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    if found is not None:
        return Bind(found)
    if not wanted:
        message = "no persistent volumes available for this claim and no storage class is set"
        return StayPending("FailedBinding", message)
    if storage_class is None:
        return StayPending("ProvisioningFailed", f'storageclass.storage.k8s.io "{wanted}" not found', warning=True)
    if storage_class.provisioner == NO_PROVISIONER:
        return StayPending(
            "FailedBinding",
            f'no persistent volume of class "{wanted}" fits this claim, and the class has no provisioner',
        )
    if storage_class.provisioner != PROVISIONER:
        message = (
            f"Waiting for a volume to be created either by the external provisioner '{storage_class.provisioner}', "
            "which this cluster does not have, or manually by the system administrator."
        )
        return StayPending("ExternalProvisioning", message)
    if claim.spec.selector is not None:
        return StayPending("ProvisioningFailed", "claim.Spec.Selector is not supported", warning=True)
    if claim.spec.volume_mode != "Filesystem":
        message = f"{PROVISIONER} does not support block volume provisioning"
        return StayPending("ProvisioningFailed", message, warning=True)
    return Provision(storage_class)


def _bind_error(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str | None:
    """Why the named volume cannot be bound, in upstream's words."""
    if volume.size < claim.size:
        return "requested PV is too small"
    if volume.storage_class != (claim.storage_class or ""):
        return "storageClassName does not match"
    return _mismatch(claim, volume)


def _mismatch(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str | None:
    if volume.spec.volume_mode != claim.spec.volume_mode:
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return None


def _phase(volume: PersistentVolume, phase: str) -> VolumeStep:
    return Keep() if volume.status.phase == phase else SetPhase(phase)


def _size(amounts: Mapping[str, Any]) -> Fraction:
    return parse_quantity(amounts.get("storage", 0))
