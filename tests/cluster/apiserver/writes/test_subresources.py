"""Writes through `scale` and `binding`.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.raw_api import RawApi, Reply
from tests.support.objects.manifests import bind, deployment, pod
from tests.support.objects.widgets import definition, install, widget
from tests.support.waiting import eventually


class TestScale:
    async def deployed(self, api: RawApi) -> str:
        """The path of a Deployment's scale."""
        group = "apis/apps/v1"
        assert (await api.post(api.path("deployments", group=group), deployment(replicas=2))).code == 201
        return api.path("deployments", "web", "scale", group=group)

    async def put(self, api: RawApi, path: str, spec: Any, **metadata: Any) -> Reply:
        return await api.put(path, {"metadata": {"name": "web", "namespace": api.namespace, **metadata}, "spec": spec})

    @pytest.mark.parametrize(("spec", "replicas"), [({"replicas": 5}, 5), ({"replicas": None}, 0), ({}, 0), (None, 0)])
    async def test_replicas_are_set(self, api: RawApi, spec: Any, replicas: int) -> None:
        path = await self.deployed(api)
        reply = await self.put(api, path, spec)
        assert (reply.code, reply.body["spec"].get("replicas", 0)) == (200, replicas)
        assert (await api.get(path.removesuffix("/scale"))).body["spec"]["replicas"] == replicas

    @pytest.mark.parametrize("spec", [[1], "x", 7, {"replicas": "5"}, {"replicas": True}, {"replicas": [1]}])
    async def test_scale_of_another_shape_is_refused(self, api: RawApi, spec: Any) -> None:
        path = await self.deployed(api)
        assert (await self.put(api, path, spec)).code == 400
        assert (await api.get(path)).body["spec"]["replicas"] == 2

    async def test_negative_replicas_are_invalid(self, api: RawApi) -> None:
        path = await self.deployed(api)
        reply = await self.put(api, path, {"replicas": -1})
        assert reply.code == 422
        assert "spec.replicas: Invalid value: -1: must be greater than or equal to 0" in reply.message

    async def test_stale_scale_conflicts(self, api: RawApi) -> None:
        path = await self.deployed(api)
        assert (await self.put(api, path, {"replicas": 3}, resourceVersion="1")).code == 409

        async def put_current() -> Reply:
            current = (await api.get(path)).metadata["resourceVersion"]
            return await self.put(api, path, {"replicas": 3}, resourceVersion=current)

        # The real server's controller may write the Deployment in between, a few times.
        await eventually(put_current, lambda reply: reply.code == 200)

    async def test_selector_of_the_object_is_shown(self, api: RawApi) -> None:
        path = await self.deployed(api)
        assert (await api.get(path)).body["status"] == {"replicas": 0, "selector": "app=web"}

    async def test_custom_resource_has_a_scale_without_a_selector(self, api: RawApi) -> None:
        path = await install(api, definition())
        assert (await api.post(path, widget("web", size=3))).code == 201
        scale = (await api.get(f"{path}/web/scale")).body
        assert (scale["spec"], scale["status"]) == ({"replicas": 3}, {"replicas": 0})
        reply = await self.put(api, f"{path}/web/scale", {"replicas": -1})
        assert reply.code == 422
        assert "-1" in reply.message


class TestBinding:
    async def test_binding_adds_its_labels_and_annotations(self, api: RawApi) -> None:
        body = pod()
        body["metadata"] |= {"labels": {"a": "1", "b": "1"}}
        assert (await api.post(api.path("pods"), body)).code == 201
        metadata = {"name": "p", "labels": {"b": "2"}, "annotations": {"c": "3"}}
        binding = {"metadata": metadata, "target": {"kind": "Node", "name": "n1"}}
        assert (await api.post(api.path("pods", "p", "binding"), binding)).code == 201
        bound = await api.get(api.path("pods", "p"))
        assert bound.body["spec"]["nodeName"] == "n1"
        assert (bound.metadata["labels"], bound.metadata["annotations"]) == ({"a": "1", "b": "2"}, {"c": "3"})
        assert [one["type"] for one in bound.body["status"]["conditions"]] == ["PodScheduled"]

    async def test_pod_is_bound_once(self, api: RawApi) -> None:
        assert (await api.post(api.path("pods"), pod())).code == 201
        assert (await bind(api)).code == 201
        assert (await bind(api)).code == 409

    @pytest.mark.parametrize(
        "metadata", [{"annotations": ["a"]}, {"annotations": {"a": 1}}, {"labels": "x"}, {"labels": {"a": {}}}]
    )
    async def test_binding_of_another_shape_is_refused(self, api: RawApi, metadata: dict[str, Any]) -> None:
        assert (await api.post(api.path("pods"), pod())).code == 201
        binding = {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": "n1"}}
        assert (await api.post(api.path("pods", "p", "binding"), binding)).code == 400
        assert "nodeName" not in (await api.get(api.path("pods", "p"))).body["spec"]
