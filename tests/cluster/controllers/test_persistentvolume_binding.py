from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.controllers.persistentvolume_binding import (
    AssignClass,
    Bind,
    ClaimStep,
    Keep,
    MarkLost,
    PersistentVolume,
    PersistentVolumeClaim,
    Provision,
    Reclaim,
    SetPhase,
    StayPending,
    StorageClass,
    Unbind,
    best_volume,
    decide_claim,
    decide_volume,
)
from trainwright.objects.quantities import parse_quantity

COMPLETED = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


def volume(
    name: str = "pv",
    *,
    size: str = "10Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    phase: str = "Available",
    **more: Any,
) -> PersistentVolume:
    metadata = {"name": name, "uid": f"uid-{name}", **more.pop("metadata", {})}
    spec = {"capacity": {"storage": size}, "accessModes": list(modes), **more}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PersistentVolume)


def claim(
    name: str = "data",
    *,
    size: str = "5Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    phase: str = "Pending",
    **more: Any,
) -> PersistentVolumeClaim:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", **more.pop("metadata", {})}
    spec = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **more}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PersistentVolumeClaim)


def storage_class(
    name: str = "standard", *, default: bool = False, created: str = "2026-01-01T00:00:00Z", **more: Any
) -> StorageClass:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": annotations, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "provisioner": "trainwright.dev/host-path", **more}, StorageClass)


def step(
    wanted: PersistentVolumeClaim,
    *volumes: PersistentVolume,
    classes: tuple[StorageClass, ...] = (),
    has_consumer: bool = False,
) -> ClaimStep:
    return decide_claim(
        wanted,
        volumes={one.name: one for one in volumes},
        classes={one.name: one for one in classes},
        has_consumer=has_consumer,
    )


def kept_for(name: str, *, uid: str = "", namespace: str = "ns") -> dict[str, str]:
    return {"namespace": namespace, "name": name, "uid": uid}


def test_the_smallest_volume_that_suffices_is_taken() -> None:
    small, fitting, large = volume("small", size="4Gi"), volume("fitting", size="5Gi"), volume("large", size="50Gi")
    assert step(claim(), large, small, fitting) == Bind(fitting)


def test_fewer_access_modes_count_before_size() -> None:
    narrow = volume("narrow", size="50Gi")
    wide = volume("wide", size="5Gi", modes=("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"))
    assert step(claim(), wide, narrow) == Bind(narrow)
    assert step(claim(modes=("ReadWriteMany",)), wide, narrow) == Bind(wide)


@pytest.mark.parametrize(
    "unfit",
    [
        volume(size="1Gi"),
        volume(size="many"),
        volume(modes=("ReadOnlyMany",)),
        volume(volumeMode="Block"),
        volume(storageClassName="fast"),
        volume(phase="Released"),
        volume(phase=""),
        volume(phase="Bound", claimRef=kept_for("other", uid="uid-other")),
        volume(claimRef=kept_for("other")),
        volume(claimRef=kept_for("data", uid="an-earlier-claim-of-that-name")),
        volume(claimRef=kept_for("data", namespace="elsewhere")),
        volume(metadata={"deletionTimestamp": "2026-11-15T04:00:00Z"}),
    ],
)
def test_a_volume_that_does_not_fit_is_not_taken(unfit: PersistentVolume) -> None:
    message = "no persistent volumes available for this claim and no storage class is set"
    assert step(claim(), unfit) == StayPending("FailedBinding", message)


def test_pre_bound_volume_wins_over_a_smaller_one_of_any_class() -> None:
    kept = volume("kept", size="90Gi", storageClassName="manual", claimRef=kept_for("data"))
    assert step(claim(storageClassName=""), volume("small", size="5Gi"), kept) == Bind(kept)


def test_a_selector_chooses_by_labels() -> None:
    right = volume("right", metadata={"labels": {"name": "dataset", "tier": "a"}})
    wrong = volume("wrong", size="5Gi", metadata={"labels": {"name": "models"}})
    expression = {"key": "tier", "operator": "In", "values": ["a", "b"]}
    assert step(claim(selector={"matchLabels": {"name": "dataset"}}), right, wrong) == Bind(right)
    assert step(claim(selector={"matchExpressions": [expression]}), right, wrong) == Bind(right)


def test_only_a_claim_that_leaves_all_open_gets_the_default_class() -> None:
    classes = (storage_class("old", default=True), storage_class("new", default=True, created="2026-02-01T00:00:00Z"))
    labelled = volume("pv", metadata={"labels": {"name": "dataset"}})
    assert step(claim(), classes=classes) == AssignClass("new")
    # Pairs written before there were classes bind as they did: a selector or a name says what is meant.
    assert step(claim(selector={"matchLabels": {"name": "dataset"}}), labelled, classes=classes) == Bind(labelled)
    assert step(claim(volumeName="pv"), labelled, classes=classes) == Bind(labelled)
    assert isinstance(step(claim(storageClassName=""), classes=classes), StayPending)


def test_the_class_annotation_of_old_manifests_still_counts() -> None:
    old = {"annotations": {"volume.beta.kubernetes.io/storage-class": "manual"}}
    there = volume("pv", metadata=old)
    assert step(claim(metadata=old), there, classes=(storage_class(default=True),)) == Bind(there)


def test_the_class_of_a_static_pair_need_not_exist() -> None:
    there = volume(storageClassName="manual")
    assert step(claim(storageClassName="manual"), there) == Bind(there)


def test_a_class_of_ours_provisions_when_no_volume_fits() -> None:
    ours = storage_class()
    assert step(claim(storageClassName="standard"), classes=(ours,)) == Provision(ours)
    there = volume(storageClassName="standard")
    assert step(claim(storageClassName="standard"), there, classes=(ours,)) == Bind(there)


@pytest.mark.parametrize(
    ("spec", "one", "reason", "part"),
    [
        ({}, None, "ProvisioningFailed", 'storageclass.storage.k8s.io "standard" not found'),
        ({}, {"provisioner": "kubernetes.io/no-provisioner"}, "FailedBinding", "has no provisioner"),
        ({}, {"provisioner": "ebs.csi.aws.com"}, "ExternalProvisioning", "'ebs.csi.aws.com'"),
        ({"selector": {"matchLabels": {"a": "b"}}}, {}, "ProvisioningFailed", "claim.Spec.Selector is not supported"),
        ({"volumeMode": "Block"}, {}, "ProvisioningFailed", "does not support block volume provisioning"),
        ({"size": "lots"}, {}, "FailedBinding", "spec.resources.requests.storage: 'lots' is not a quantity"),
    ],
)
def test_pending_claim_has_a_reason(spec: dict[str, Any], one: dict[str, Any] | None, reason: str, part: str) -> None:
    classes = () if one is None else (storage_class(**one),)
    pending = step(claim(storageClassName="standard", **spec), classes=classes)
    assert isinstance(pending, StayPending)
    assert pending.reason == reason
    assert part in pending.message


def test_a_class_may_wait_for_the_first_pod() -> None:
    late = storage_class("late", volumeBindingMode="WaitForFirstConsumer")
    there = volume(storageClassName="late")
    wanted = claim(storageClassName="late")
    waiting = StayPending("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
    assert step(wanted, there, classes=(late,)) == waiting
    assert step(wanted, there, classes=(late,), has_consumer=True) == Bind(there)
    assert step(wanted, classes=(late,), has_consumer=True) == Provision(late)


@pytest.mark.parametrize(
    ("named", "reason", "message"),
    [
        (None, "FailedBinding", 'volume "pv" not found.'),
        (volume(claimRef=kept_for("other")), "FailedBinding", 'volume "pv" already bound to a different claim.'),
        (volume(size="1Gi"), "VolumeMismatch", 'Cannot bind to requested volume "pv": requested PV is too small'),
        (
            volume(storageClassName="fast"),
            "VolumeMismatch",
            'Cannot bind to requested volume "pv": storageClassName does not match',
        ),
        (
            volume(volumeMode="Block"),
            "VolumeMismatch",
            'Cannot bind to requested volume "pv": incompatible volumeMode',
        ),
        (
            volume(modes=("ReadOnlyMany",)),
            "VolumeMismatch",
            'Cannot bind to requested volume "pv": incompatible accessMode',
        ),
    ],
)
def test_claim_waits_for_a_named_volume_that_cannot_be_bound(
    named: PersistentVolume | None, reason: str, message: str
) -> None:
    pending = step(claim(volumeName="pv"), *([named] if named else []))
    assert isinstance(pending, StayPending)
    assert (pending.reason, pending.message) == (reason, message)


def test_a_named_volume_is_taken_whatever_its_phase_is() -> None:
    fresh = volume(phase="")
    assert step(claim(volumeName="pv"), fresh) == Bind(fresh)


def test_a_bound_claim_whose_volume_is_gone_or_another_claims_is_lost() -> None:
    bound = claim(volumeName="pv", phase="Bound", metadata=COMPLETED)
    mine = volume(phase="Bound", claimRef=kept_for("data", uid="uid-data"))
    assert step(bound, mine) == Bind(mine)
    lost = step(bound)
    assert isinstance(lost, MarkLost)
    assert lost.reason == "ClaimLost"
    stolen = step(bound, volume(phase="Bound", claimRef=kept_for("data", uid="uid-other")))
    assert isinstance(stolen, MarkLost)
    assert stolen.reason == "ClaimMisbound"


def test_terminating_claim_is_not_bound() -> None:
    assert step(claim(metadata={"deletionTimestamp": "2026-11-15T04:00:00Z"}), volume()) == Keep()


def test_a_volume_is_available_until_a_claim_has_it() -> None:
    assert decide_volume(volume(phase=""), None) == SetPhase("Available")
    assert decide_volume(volume(phase="", claimRef=kept_for("data")), None) == SetPhase("Available")
    assert decide_volume(volume(), None) == Keep()
    taken = volume(claimRef=kept_for("data", uid="uid-data"))
    assert decide_volume(taken, claim()) == Keep()  # the claim comes next
    assert decide_volume(taken, claim(volumeName="pv")) == SetPhase("Bound")
    assert decide_volume(taken, claim(volumeName="another")) == Unbind()


@pytest.mark.parametrize("successor", [None, claim(metadata={"uid": "a-later-claim-of-that-name"})])
@pytest.mark.parametrize(("policy", "then"), [("Delete", Reclaim()), ("Retain", Keep())])
def test_a_volume_without_its_claim_is_released_and_then_reclaimed_by_its_policy(
    successor: PersistentVolumeClaim | None, policy: str, then: object
) -> None:
    reference = kept_for("data", uid="uid-data")
    left = volume(phase="Bound", claimRef=reference, persistentVolumeReclaimPolicy=policy)
    assert decide_volume(left, successor) == SetPhase("Released")
    released = volume(phase="Released", claimRef=reference, persistentVolumeReclaimPolicy=policy)
    assert decide_volume(released, successor) == then
    failed = volume(phase="Failed", claimRef=reference, persistentVolumeReclaimPolicy=policy)
    assert decide_volume(failed, successor) == Keep()


MODES = st.lists(st.sampled_from(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]), min_size=1, unique=True).map(
    tuple
)
SIZES = st.integers(min_value=1, max_value=20).map(lambda number: f"{number}Gi")
CLASSES = st.sampled_from(["", "manual"])
VOLUMES = st.lists(
    st.builds(lambda size, modes, name: volume(size=size, modes=modes, storageClassName=name), SIZES, MODES, CLASSES),
    max_size=6,
)


@given(VOLUMES, SIZES, MODES, CLASSES)
def test_the_chosen_volume_fits_and_if_none_is_chosen_none_does(
    volumes: list[PersistentVolume], size: str, modes: tuple[str, ...], name: str
) -> None:
    wanted = claim(size=size, modes=modes, storageClassName=name)

    def fits(one: PersistentVolume) -> bool:
        same_class = one.spec.storage_class_name == name
        return same_class and set(modes) <= set(one.spec.access_modes) and one.size >= parse_quantity(size)

    chosen = best_volume(wanted, volumes)
    if chosen is None:
        assert not any(map(fits, volumes))
    else:
        assert fits(chosen)
        rivals = [one for one in volumes if fits(one) and set(one.spec.access_modes) == set(chosen.spec.access_modes)]
        assert chosen.size == min(one.size for one in rivals)
