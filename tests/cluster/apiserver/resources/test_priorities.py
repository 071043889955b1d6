"""PriorityClasses, and the priority that admission gives to pods. Every test passes on both servers."""

from typing import Any

from tests.support.cluster.raw_api import TABLE, RawApi, Reply
from tests.support.objects.manifests import pod
from tests.support.waiting import eventually

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def priority_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "value": value, **fields}


async def test_pods_get_the_priority_of_their_class(api: RawApi) -> None:
    name = f"high-{api.namespace}"
    created = await api.post(CLASSES, priority_class(name, 1000))
    assert (created.code, created.body["preemptionPolicy"]) == (201, "PreemptLowerPriority")
    assert "globalDefault" not in created.body

    reply = await api.post(api.path("pods"), pod(spec={"priorityClassName": name}))
    plain = await api.post(api.path("pods"), pod("plain"))

    assert (reply.body["spec"]["priority"], reply.body["spec"]["preemptionPolicy"]) == (1000, "PreemptLowerPriority")
    assert plain.body["spec"]["priority"] == 0
    assert "priorityClassName" not in plain.body["spec"]
    await api.delete(f"{CLASSES}/{name}")


async def test_unknown_class_and_wrong_priority_are_forbidden(api: RawApi) -> None:
    unknown = await api.post(api.path("pods"), pod(spec={"priorityClassName": "nowhere"}))
    assert (unknown.code, unknown.message) == (
        403,
        'pods "p" is forbidden: no PriorityClass with name nowhere was found',
    )
    wrong = await api.post(api.path("pods"), pod(spec={"priority": 7}))
    assert wrong.message == (
        'pods "p" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission '
        "controller computed 0 from the given PriorityClass name"
    )


async def test_update_without_the_priority_keeps_it(api: RawApi) -> None:
    created = (await api.post(api.path("pods"), pod())).body
    del created["spec"]["priority"], created["spec"]["preemptionPolicy"]
    created["metadata"]["labels"] = {"a": "b"}
    reply = await api.put(api.path("pods", "p"), created)
    assert (reply.code, reply.body["spec"]["priority"]) == (200, 0)


async def test_classes_are_validated(api: RawApi) -> None:
    too_high = await api.post(CLASSES, priority_class("too-high", 1_000_000_001))
    assert too_high.message == (
        'PriorityClass.scheduling.k8s.io "too-high" is invalid: value: Forbidden: maximum allowed value of a user '
        "defined priority is 1000000000"
    )
    reserved = await api.post(CLASSES, priority_class("system-mine", 1))
    assert reserved.message == (
        'PriorityClass.scheduling.k8s.io "system-mine" is invalid: metadata.name: Forbidden: priority class names with '
        "'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"
    )
    name = f"kept-{api.namespace}"
    await api.post(CLASSES, priority_class(name, 5))
    changed = await api.patch(f"{CLASSES}/{name}", {"value": 6, "preemptionPolicy": "Never"})
    assert [f"{one['field']}: {one['message']}" for one in changed.body["details"]["causes"]] == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "Never": field is immutable',
    ]
    table = (await api.get(f"{CLASSES}/{name}", accept=TABLE)).body
    names = [one["name"] for one in table["columnDefinitions"]]
    assert names == ["Name", "Value", "Global-Default", "Age", "PreemptionPolicy"]
    cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert cells | {"Age": ""} == {
        "Name": name,
        "Value": 5,
        "Global-Default": False,
        "Age": "",
        "PreemptionPolicy": "PreemptLowerPriority",
    }
    await api.delete(f"{CLASSES}/{name}")


async def test_only_one_class_is_the_default(api: RawApi) -> None:
    first, second = f"first-{api.namespace}", f"second-{api.namespace}"
    await api.post(CLASSES, priority_class(first, 3, globalDefault=True))

    async def create() -> Reply:
        await api.delete(f"{CLASSES}/{second}")  # the real server's admission knows the first one a moment later
        return await api.post(CLASSES, priority_class(second, 4, globalDefault=True))

    reply = await eventually(create, lambda reply: reply.code == 403)
    assert reply.message == (
        f'priorityclasses.scheduling.k8s.io "{second}" is forbidden: PriorityClass {first} is already marked as '
        "default. Only one default can exist"
    )
    await api.post(CLASSES, priority_class(second, 4))
    for name, code in ((first, 200), (second, 403)):
        assert (await api.patch(f"{CLASSES}/{name}", {"globalDefault": True, "description": "d"})).code == code
    await api.delete(f"{CLASSES}/{second}")
    await api.delete(f"{CLASSES}/{first}")
