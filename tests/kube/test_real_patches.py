"""Every kind of patch on the real API server: changes, conflicts and errors."""

import pytest

from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Cause, Conflict, Invalid, NotFound
from trainwright.kube.client.requests import PatchKind
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, PODS

pytestmark = pytest.mark.apiserver


def config_map(name: str = "a", **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


async def apply(client: Client, obj: Object, manager: str, *, force: bool = False) -> Object:
    name = obj["metadata"]["name"]
    return await client.patch(CONFIG_MAPS, name, obj, kind=PatchKind.APPLY, field_manager=manager, force=force)


class TestMerge:
    async def test_null_removes_and_the_rest_stays(self, client: Client) -> None:
        await client.create(CONFIG_MAPS, config_map(x="1", y="1"))
        assert (await client.patch(CONFIG_MAPS, "a", {"data": {"x": None, "z": "2"}}))["data"] == {"y": "1", "z": "2"}

    async def test_the_version_is_a_condition(self, client: Client) -> None:
        old = await client.create(CONFIG_MAPS, config_map(x="1"))
        version = old["metadata"]["resourceVersion"]
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"resourceVersion": version}, "data": {"x": "2"}})
        with pytest.raises(Conflict, match="the object has been modified"):
            await client.patch(CONFIG_MAPS, "a", {"metadata": {"resourceVersion": version}, "data": {"x": "3"}})

    async def test_the_uid_is_a_condition(self, client: Client) -> None:
        made = await client.create(CONFIG_MAPS, config_map(x="1"))
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"uid": made["metadata"]["uid"]}, "data": {"x": "2"}})
        with pytest.raises((Conflict, Invalid)):
            await client.patch(CONFIG_MAPS, "a", {"metadata": {"uid": "another"}, "data": {"x": "3"}})
        assert (await client.get(CONFIG_MAPS, "a"))["data"] == {"x": "2"}

    async def test_patch_does_not_create_an_object(self, client: Client) -> None:
        with pytest.raises(NotFound):
            await client.patch(CONFIG_MAPS, "nobody", {"data": {"x": "1"}})

    async def test_status_is_changed_only_through_its_subresource(self, client: Client) -> None:
        jobs = KINDS["PyTorchJob"].resource
        await client.create(jobs, JobBuilder().master().raw() | {"metadata": {"name": "j"}})
        status = {"status": {"conditions": [{"type": "Created", "status": "True"}]}}
        assert "status" not in await client.patch(jobs, "j", status)
        patched = await client.patch(jobs, "j", status, subresource="status")
        assert patched["status"]["conditions"][0]["type"] == "Created"


class TestJson:
    async def test_json_patch_is_atomic(self, client: Client) -> None:
        await client.create(CONFIG_MAPS, config_map(x="1"))
        good = [{"op": "test", "path": "/data/x", "value": "1"}, {"op": "replace", "path": "/data/x", "value": "2"}]
        assert (await client.patch(CONFIG_MAPS, "a", good, kind=PatchKind.JSON))["data"] == {"x": "2"}
        with pytest.raises(Invalid):
            await client.patch(CONFIG_MAPS, "a", [good[1] | {"value": "3"}, good[0]], kind=PatchKind.JSON)
        assert (await client.get(CONFIG_MAPS, "a"))["data"] == {"x": "2"}


class TestStrategic:
    async def test_lists_are_merged_by_their_key(self, client: Client) -> None:
        containers = [{"name": "main", "image": "old"}, {"name": "side", "image": "old"}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
        await client.create(PODS, pod)
        patch = {"spec": {"containers": [{"name": "side", "image": "new"}]}}
        patched = await client.patch(PODS, "p", patch, kind=PatchKind.STRATEGIC)
        images = {container["name"]: container["image"] for container in patched["spec"]["containers"]}
        assert images == {"main": "old", "side": "new"}

    async def test_custom_resources_reject_strategic_merge_patches(self, client: Client) -> None:
        with pytest.raises(ApiError, match="accepted media types include") as refused:
            await client.patch(KINDS["PyTorchJob"].resource, "j", {}, kind=PatchKind.STRATEGIC)
        assert refused.value.code == 415


class TestApply:
    async def test_apply_creates_and_removes_fields_that_it_owned(self, client: Client) -> None:
        await apply(client, config_map(x="1", y="1"), "me")
        unchanged = await apply(client, config_map(x="1", y="1"), "me")
        assert (await apply(client, config_map(x="1", y="1"), "me")) == unchanged
        assert (await apply(client, config_map(x="2"), "me"))["data"] == {"x": "2"}

    async def test_another_managers_field_is_a_conflict_that_names_both(self, client: Client) -> None:
        await apply(client, config_map(x="1", y="1"), "ada")
        with pytest.raises(Conflict) as refused:
            await apply(client, config_map(x="2", y="2"), "grace")
        assert refused.value.reason == "Conflict"
        assert sorted(refused.value.causes, key=lambda cause: cause.field) == [
            Cause("FieldManagerConflict", 'conflict with "ada"', ".data.x"),
            Cause("FieldManagerConflict", 'conflict with "ada"', ".data.y"),
        ]
        assert (await client.get(CONFIG_MAPS, "a"))["data"] == {"x": "1", "y": "1"}

    async def test_equal_values_are_shared_and_force_takes_over(self, client: Client) -> None:
        await apply(client, config_map(x="1"), "ada")
        await apply(client, config_map(x="1"), "grace")
        assert (await apply(client, config_map(x="2"), "grace", force=True))["data"] == {"x": "2"}
        with pytest.raises(Conflict, match='conflict with "grace"'):
            await apply(client, config_map(x="1"), "ada")

    async def test_apply_requires_a_field_manager(self, client: Client) -> None:
        with pytest.raises(Invalid, match="fieldManager: Required value: is required for apply patch"):
            await client.patch(CONFIG_MAPS, "a", config_map(), kind=PatchKind.APPLY)


async def test_invalid_field_is_named(client: Client) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    with pytest.raises(Invalid) as refused:
        await client.create(PODS, pod)
    assert Cause("FieldValueRequired", "Required value", "spec.containers") in refused.value.causes
