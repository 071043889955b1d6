"""LimitRanges on values: the defaults of new pods, and what is refused with which message."""

from typing import Any

import pytest

from tests.support.cluster.object_stores import store_with
from tests.support.objects.manifests import pod
from trainwright.cluster.apiserver.admission.plugins.limit_ranger import admit_limits
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS, Resource

TYPES = Registry()
NO_REQUEST = "minimum cpu usage per Container is 1.  No request is specified"
NO_LIMIT = "maximum cpu usage per Container is 1.  No limit is specified"


def new_pod(**container: Any) -> Object:
    return pod(**container) | {"status": {"phase": "Pending", "qosClass": "BestEffort"}}


def claim(**requests: str) -> Object:
    return {"metadata": {"name": "data"}, "spec": {"resources": {"requests": requests}}}


async def admit(obj: Object, *limits: Object, resource: Resource = PODS) -> None:
    """Into a namespace with one LimitRange of these limits."""
    spec = {"limits": list(limits) or None}
    store = await store_with((LIMIT_RANGES, {"metadata": {"name": "l", "namespace": "default"}, "spec": spec}))
    admit_limits(store, TYPES.of(resource), "default", obj)


async def refusal(obj: Object, *limits: Object, resource: Resource = PODS) -> str:
    with pytest.raises(StatusError) as failure:
        await admit(obj, *limits, resource=resource)
    assert failure.value.code == 403
    return failure.value.message.partition(" is forbidden: ")[2]


async def test_containers_get_the_defaults_that_they_lack() -> None:
    body = new_pod(resources={"limits": {"cpu": "2"}})
    body["spec"]["initContainers"] = [{"name": "first", "image": "i"}]
    default = {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "1"}}

    await admit(body, {"type": "Pod"}, default)

    main, first = body["spec"]["containers"][0], body["spec"]["initContainers"][0]
    assert main["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    assert first["resources"] == {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert body["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container main; memory limit for "
        "container main; cpu request for init container first; cpu, memory limit for init container first"
    }
    assert body["status"]["qosClass"] == "Burstable"


async def test_pod_that_lacks_nothing_is_left() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    body = new_pod(resources=resources)

    await admit(body)
    await admit(body, {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}})

    assert body == new_pod(resources=resources)


@pytest.mark.parametrize(
    ("resources", "bounds", "problem"),
    [
        ({}, {"min": {"cpu": "1"}}, NO_REQUEST),
        (
            {"requests": {"cpu": "500m"}},
            {"min": {"cpu": "1"}},
            "minimum cpu usage per Container is 1, but request is 500m",
        ),
        (
            {"requests": {"cpu": "1"}, "limits": {"cpu": "900m"}},
            {"min": {"cpu": "1"}},
            "minimum cpu usage per Container is 1, but limit is 900m",
        ),
        ({}, {"max": {"cpu": "1"}}, NO_LIMIT),
        ({"limits": {"cpu": "2"}}, {"max": {"cpu": "1"}}, "maximum cpu usage per Container is 1, but limit is 2"),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
            {"max": {"cpu": "1"}},
            "maximum cpu usage per Container is 1, but request is 2",
        ),
        (
            {"limits": {"cpu": "1"}},
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        (
            {"requests": {"cpu": "1"}},
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (
            {"requests": {"cpu": "1"}, "limits": {"cpu": "2500m"}},
            {"maxLimitRequestRatio": {"cpu": "2"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 2.500000",
        ),
        (
            {},
            {"min": {"cpu": "1"}, "max": {"cpu": "1"}},
            f"[{NO_REQUEST}, {NO_LIMIT}]",
        ),
    ],
)
async def test_container_outside_of_the_limits_is_forbidden(resources: Object, bounds: Object, problem: str) -> None:
    assert await refusal(new_pod(resources=resources), {"type": "Container", **bounds}) == problem


@pytest.mark.parametrize("resources", [{"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}])
async def test_container_on_the_bounds_is_allowed(resources: Object) -> None:
    await admit(new_pod(resources=resources), {"type": "Container", "min": {"cpu": "1"}})


@pytest.mark.parametrize("resources", [{"limits": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}])
async def test_container_below_the_bounds_is_allowed(resources: Object) -> None:
    await admit(new_pod(resources=resources), {"type": "Container", "max": {"cpu": "2"}})


async def test_ratio_on_the_bound_is_allowed() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    await admit(new_pod(resources=resources), {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}})


async def test_init_containers_have_the_same_bounds() -> None:
    body = new_pod(resources={"limits": {"cpu": "1"}})
    body["spec"]["initContainers"] = [{"name": "first", "resources": {"limits": {"cpu": "3"}}}]

    found = await refusal(body, {"type": "Container", "max": {"cpu": "2"}})

    assert found == "maximum cpu usage per Container is 2, but limit is 3"


@pytest.mark.parametrize(("initial", "total"), [("1", "2"), ("3", "3")])
async def test_pod_needs_the_sum_of_its_containers_or_more_for_an_init_container(initial: str, total: str) -> None:
    body = new_pod()
    body["spec"] = {
        "containers": [{"name": name, "resources": {"limits": {"cpu": "1"}}} for name in "ab"],
        "initContainers": [{"name": "first", "resources": {"limits": {"cpu": initial}}}],
    }

    found = await refusal(body, {"type": "Pod", "max": {"cpu": "1500m"}})

    assert found == f"maximum cpu usage per Pod is 1500m, but limit is {total}"
    await admit(body, {"type": "Pod", "max": {"cpu": total}})


@pytest.mark.parametrize(
    ("body", "bounds", "problem"),
    [
        (claim(), {"min": {"storage": "1Gi"}}, "minimum storage usage per {} is 1Gi.  No request is specified"),
        (claim(storage="1"), {"min": {"storage": "1Gi"}}, "minimum storage usage per {} is 1Gi, but request is 1"),
        (claim(storage="2Gi"), {"max": {"storage": "1Gi"}}, "maximum storage usage per {} is 1Gi, but request is 2Gi"),
    ],
)
async def test_claim_outside_of_the_limits_is_forbidden(body: Object, bounds: Object, problem: str) -> None:
    item = {"type": "PersistentVolumeClaim", **bounds}

    found = await refusal(body, item, resource=PERSISTENT_VOLUME_CLAIMS)

    assert found == problem.format("PersistentVolumeClaim")
    await admit(claim(storage="1Gi"), item, resource=PERSISTENT_VOLUME_CLAIMS)


async def test_limits_of_pods_do_not_concern_claims_and_other_kinds() -> None:
    limits = ({"type": "Container", "max": {"storage": "1"}}, {"type": "Pod", "max": {"storage": "1"}})
    await admit(claim(storage="1Gi"), *limits, resource=PERSISTENT_VOLUME_CLAIMS)
    await admit({"metadata": {"name": "c"}}, *limits, resource=CONFIG_MAPS)


async def test_limits_of_claims_and_of_other_namespaces_do_not_concern_a_pod() -> None:
    await admit(new_pod(), {"type": "PersistentVolumeClaim", "max": {"cpu": "1"}})
    elsewhere = {"metadata": {"name": "l", "namespace": "other"}, "spec": {"limits": [{"type": "Pod"}]}}
    admit_limits(await store_with((LIMIT_RANGES, elsewhere)), TYPES.of(PODS), "default", new_pod())
