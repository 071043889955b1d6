"""Priorities on values: the class of a new pod decides, and one class is the default."""

from typing import Any

import pytest

from tests.support.cluster.object_stores import store_with
from tests.support.objects.manifests import pod
from trainwright.cluster.apiserver.admission.plugins.priority import admit_priority_class, set_priority
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import PRIORITY_CLASSES


def priority_class(name: str, value: int, **fields: Any) -> Object:
    return {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority", **fields}


async def classes(*present: Object) -> ObjectStore:
    return await store_with(*((PRIORITY_CLASSES, priority) for priority in present))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, {"priorityClassName": "low", "priority": 1}),
        ({"priorityClassName": "high"}, {"priorityClassName": "high", "priority": 1000}),
        ({"priorityClassName": "high", "priority": 1000}, {"priorityClassName": "high", "priority": 1000}),
    ],
)
async def test_pod_gets_the_priority_of_its_class_or_of_the_lowest_default(wanted: Object, expected: Object) -> None:
    store = await classes(
        priority_class("mid", 10, globalDefault=True),
        priority_class("low", 1, globalDefault=True),
        priority_class("high", 1000),
    )
    body = pod(spec=wanted)

    set_priority(store, body)

    assert body == pod(spec=expected | {"preemptionPolicy": "PreemptLowerPriority"})


async def test_pod_without_any_class_has_priority_zero() -> None:
    body = pod()
    set_priority(await classes(), body)
    assert body == pod(spec={"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"priorityClassName": "nowhere"}, "no PriorityClass with name nowhere was found"),
        ({"priority": 7}, "the integer value of priority (7) must not be provided in pod spec; "),
        (
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec",
        ),
    ],
)
async def test_pod_that_contradicts_its_class_is_forbidden(spec: Object, problem: str) -> None:
    with pytest.raises(StatusError) as failure:
        set_priority(await classes(), pod(spec=spec))
    assert failure.value.message.startswith(f'pods "p" is forbidden: {problem}')


async def test_there_is_one_default() -> None:
    store = await classes(priority_class("first", 1, globalDefault=True))
    for allowed in (priority_class("second", 2), priority_class("first", 1, globalDefault=True)):
        admit_priority_class(store, allowed)

    with pytest.raises(StatusError, match="PriorityClass first is already marked as default"):
        admit_priority_class(store, priority_class("second", 2, globalDefault=True))
