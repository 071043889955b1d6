"""What a DELETE makes of an object: marks, finalizers, grace periods, removal."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage.store import Removed
from trainwright.cluster.apiserver.writes.deletion import DeleteOptions, deleted_object
from trainwright.objects import Object
from trainwright.objects.resources import BATCH_JOBS, CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PODS, Resource
from trainwright.objects.times import format_time, parse_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REGISTRY = Registry()


def metadata(**fields: Any) -> Object:
    return {"name": "x", "uid": "1", "resourceVersion": "7", **fields}


def pod(*, phase: str = "Running", node: str = "n", grace: int | None = 30) -> Object:
    spec = {"nodeName": node} | ({} if grace is None else {"terminationGracePeriodSeconds": grace})
    return {"kind": "Pod", "metadata": metadata(), "spec": spec, "status": {"phase": phase}}


def delete(resource: Resource, obj: Object, later: float = 0, **options: Any) -> Object | Removed:
    moment = NOW + timedelta(seconds=later)
    return deleted_object(REGISTRY.of(resource), obj, DeleteOptions(**options), moment)


def marked(result: Object | Removed) -> Object:
    assert isinstance(result, dict)
    found: Object = result["metadata"]
    return found


def test_object_without_finalizers_is_removed_at_once() -> None:
    obj = {"kind": "ConfigMap", "metadata": metadata()}
    removed = delete(CONFIG_MAPS, obj)
    assert isinstance(removed, Removed)
    assert removed.last["metadata"]["deletionTimestamp"] == format_time(NOW)
    assert "deletionTimestamp" not in obj["metadata"]


def test_object_with_a_finalizer_is_marked_once() -> None:
    obj = {"kind": "Deployment", "metadata": metadata(finalizers=["f"], generation=4)}
    first = delete(DEPLOYMENTS, obj)
    assert (marked(first)["generation"], marked(first)["deletionTimestamp"]) == (5, format_time(NOW))
    assert isinstance(first, dict)
    assert delete(DEPLOYMENTS, first, later=60) is first


@pytest.mark.parametrize(
    ("options", "code_and_text"),
    [
        ({"uid": "2"}, "the UID in the precondition (2) does not match the UID in record (1). The object might have "),
        ({"resource_version": "6"}, "the ResourceVersion in the precondition (6) does not match the ResourceVersion "),
    ],
)
def test_preconditions_of_another_object_conflict(options: dict[str, Any], code_and_text: str) -> None:
    for resource, named in ((CONFIG_MAPS, "ConfigMap"), (DEPLOYMENTS, "Deployment.apps")):
        with pytest.raises(StatusError) as raised:
            delete(resource, {"kind": resource.kind, "metadata": metadata()}, **options)
        assert raised.value.code == 409
        assert raised.value.message.startswith(f'Operation cannot be fulfilled on {named} "x": {code_and_text}')
    held = {"kind": "ConfigMap", "metadata": metadata()}
    assert isinstance(delete(CONFIG_MAPS, held, uid="1", resource_version="7"), Removed)


@pytest.mark.parametrize(
    ("resource", "before", "propagation", "after"),
    [
        (CONFIG_MAPS, [], "Foreground", ["foregroundDeletion"]),
        (CONFIG_MAPS, ["f", "orphan"], "Foreground", ["f", "foregroundDeletion"]),
        (CONFIG_MAPS, ["f"], "Orphan", ["f", "orphan"]),
        (CONFIG_MAPS, ["f", "foregroundDeletion"], "Background", ["f"]),
        (CONFIG_MAPS, ["f", "foregroundDeletion"], None, ["f", "foregroundDeletion"]),
        (BATCH_JOBS, ["f"], None, ["f", "orphan"]),
        (BATCH_JOBS, ["f"], "Background", ["f"]),
        (BATCH_JOBS, ["foregroundDeletion"], None, ["foregroundDeletion"]),
    ],
)
def test_propagation_policy_becomes_a_finalizer(
    resource: Resource, before: list[str], propagation: str | None, after: list[str]
) -> None:
    obj = {"kind": resource.kind, "metadata": metadata(finalizers=before)}
    assert marked(delete(resource, obj, propagation=propagation))["finalizers"] == after


def test_last_finalizer_can_be_dropped_by_a_second_delete() -> None:
    waiting = delete(CONFIG_MAPS, {"kind": "ConfigMap", "metadata": metadata()}, propagation="Foreground")
    assert isinstance(waiting, dict)
    assert isinstance(delete(CONFIG_MAPS, waiting, propagation="Background"), Removed)


def test_namespace_stays_until_it_is_finalized() -> None:
    namespace = {"kind": "Namespace", "metadata": metadata(), "spec": {"finalizers": ["kubernetes"]}}
    result = delete(NAMESPACES, namespace)
    assert isinstance(result, dict)
    assert result["status"]["phase"] == "Terminating"
    assert isinstance(delete(NAMESPACES, result | {"spec": {}}), Removed)


class TestGracePeriods:
    @pytest.mark.parametrize("ended", [pod(phase="Succeeded"), pod(phase="Failed"), pod(node="")])
    def test_pod_that_does_not_run_has_none(self, ended: Object) -> None:
        assert isinstance(delete(PODS, ended, grace_seconds=60), Removed)

    @pytest.mark.parametrize(
        ("own", "asked", "seconds"),
        [(30, None, 30), (None, None, 30), (30, 5, 5), (30, 99, 99), (30, 10**12, 2**31 - 1)],
    )
    def test_request_precedes_the_pods_own(self, own: int | None, asked: int | None, seconds: int) -> None:
        found = marked(delete(PODS, pod(grace=own), grace_seconds=asked))
        assert found["deletionGracePeriodSeconds"] == seconds
        assert parse_time(found["deletionTimestamp"]) == NOW + timedelta(seconds=seconds)

    @pytest.mark.parametrize("asked", [0, -5])
    def test_without_a_grace_period_it_is_removed_at_once(self, asked: int) -> None:
        assert isinstance(delete(PODS, pod(), grace_seconds=asked), Removed)

    @given(st.integers(1, 100), st.lists(st.tuples(st.none() | st.integers(0, 100), st.integers(0, 50)), max_size=4))
    def test_later_requests_only_shorten_it(self, first: int, later: list[tuple[int | None, int]]) -> None:
        """A shorter grace period counts from the first DELETE."""
        current, shortest = delete(PODS, pod(grace=50), grace_seconds=first), first
        for asked, moment in later:
            assert isinstance(current, dict)
            current = delete(PODS, current, later=moment, grace_seconds=asked)
            shortest = min(shortest, shortest if asked is None else asked)
            if shortest == 0:
                assert isinstance(current, Removed)
                return
            found = marked(current)
            assert found["deletionGracePeriodSeconds"] == shortest
            assert parse_time(found["deletionTimestamp"]) == NOW + timedelta(seconds=shortest)

    def test_pod_that_ends_meanwhile_is_removed_by_the_next_request(self) -> None:
        waiting = delete(PODS, pod())
        assert isinstance(waiting, dict)
        assert isinstance(delete(PODS, waiting | {"status": {"phase": "Failed"}}), Removed)
