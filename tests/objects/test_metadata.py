"""The view of an object's metadata."""

import msgspec

from trainwright.objects.metadata import ObjectMeta, controller_reference, namespaced_name

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist", "namespace": "train", "uid": "u1"},
}


def test_key_has_a_namespace_only_for_namespaced_objects() -> None:
    assert namespaced_name(JOB) == "train/mnist"
    assert namespaced_name({"metadata": {"name": "local"}}) == "local"


def test_controller_is_the_managing_owner() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u2"}
    metadata = msgspec.convert({"name": "p", "ownerReferences": [other, controller_reference(JOB)]}, ObjectMeta)
    assert metadata.controller is not None
    assert (metadata.controller.kind, metadata.controller.uid) == ("PyTorchJob", "u1")
    assert msgspec.convert({"name": "p", "ownerReferences": [other]}, ObjectMeta).controller is None


def test_an_object_with_a_deletion_time_is_terminating() -> None:
    assert not msgspec.convert({"creationTimestamp": None}, ObjectMeta).terminating
    assert msgspec.convert({"deletionTimestamp": "2026-11-15T04:05:06Z"}, ObjectMeta).terminating
