"""All types of patches, server-side apply, and field validation.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import json
from typing import Any

import pytest

from tests.support.cluster.raw_api import APPLY, JSON_PATCH, MERGE, STRATEGIC, RawApi
from tests.support.objects.manifests import config_map, deployment, pod
from tests.support.objects.widgets import definition, install, widget


class TestPatches:
    async def test_merge_patch(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map(data={"a": "1", "b": "2"}))
        reply = await api.patch(api.path("configmaps", "c"), {"data": {"a": None, "c": "3"}})
        assert (reply.code, reply.body["data"]) == (200, {"b": "2", "c": "3"})
        stale = await api.patch(api.path("configmaps", "c"), {"metadata": {"resourceVersion": "1"}, "data": {"d": "4"}})
        assert stale.code == 409
        assert (await api.patch(api.path("configmaps", "x"), {"data": {}})).code == 404
        assert (await api.patch(api.path("configmaps", "c"), b"{bad")).code == 400

    async def test_json_patch(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map(data={"a": "1", "b": "2"}))
        operations = [
            {"op": "test", "path": "/data/a", "value": "1"},
            {"op": "add", "path": "/data/c", "value": "3"},
            {"op": "remove", "path": "/data/b"},
            {"op": "copy", "from": "/data/a", "path": "/data/d"},
            {"op": "move", "from": "/data/c", "path": "/data/e"},
            {"op": "replace", "path": "/data/a", "value": "9"},
        ]
        reply = await api.patch(api.path("configmaps", "c"), operations, JSON_PATCH)
        assert (reply.code, reply.body["data"]) == (200, {"a": "9", "d": "1", "e": "3"})
        refused = await api.patch(
            api.path("configmaps", "c"), [{"op": "test", "path": "/data/a", "value": "no"}], JSON_PATCH
        )
        assert (refused.code, refused.body["reason"]) == (422, "Invalid")
        assert refused.message.startswith("the server rejected our request due to an error in our request")

    @pytest.mark.parametrize("value", [True, 1.5, "1", None])
    async def test_json_patch_distinguishes_values_of_other_types(self, api: RawApi, value: Any) -> None:
        await api.post(api.path("deployments", group="apis/apps/v1"), deployment(replicas=1))
        path = api.path("deployments", "web", group="apis/apps/v1")
        for wanted, code in ((1, 200), (value, 422)):
            test = {"op": "test", "path": "/spec/replicas", "value": wanted}
            assert (await api.patch(path, [test], JSON_PATCH)).code == code

    async def test_strategic_merge_patch_leaves_what_is_no_list_of_values(self, api: RawApi) -> None:
        await api.post(api.path("deployments", group="apis/apps/v1"), deployment(replicas=1))
        path = api.path("deployments", "web", group="apis/apps/v1")
        for field in ("replicas", "selector", "nonsense"):
            reply = await api.patch(path, {"spec": {f"$deleteFromPrimitiveList/{field}": [1]}}, STRATEGIC)
            assert (reply.code, reply.body["spec"]["replicas"]) == (200, 1)
            assert reply.body["spec"]["selector"] == {"matchLabels": {"app": "web"}}

    async def test_strategic_merge_patch_merges_lists_by_their_keys(self, api: RawApi) -> None:
        containers = [{"name": "a", "image": "one"}, {"name": "b", "image": "two"}]
        await api.post(api.path("pods"), pod(spec={"containers": containers}))
        patch = {
            "spec": {
                "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                "containers": [{"name": "b", "image": "three"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
            }
        }
        reply = await api.patch(api.path("pods", "p"), patch, STRATEGIC)
        assert reply.code == 200
        assert [(one["name"], one["image"]) for one in reply.body["spec"]["containers"]] == [
            ("a", "one"),
            ("b", "three"),
        ]

    async def test_strategic_merge_patch_deletes_and_replaces(self, api: RawApi) -> None:
        ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        service = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": ports, "selector": {"x": "y"}}}
        await api.post(api.path("services"), service)
        patch = {"spec": {"ports": [{"port": 1, "$patch": "delete"}], "selector": {"$patch": "replace", "z": "w"}}}
        reply = await api.patch(api.path("services", "s"), patch, STRATEGIC)
        assert [one["port"] for one in reply.body["spec"]["ports"]] == [2]
        assert reply.body["spec"]["selector"] == {"z": "w"}

    async def test_patch_that_cannot_be_applied_changes_nothing(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map(data={"a": "1"}))
        path = api.path("configmaps", "c")
        for patch, media, code in (
            ([{"op": "remove", "path": "/data/x"}], JSON_PATCH, 422),
            ([{"op": "test", "path": "/data/a", "value": None}] * 10_001, JSON_PATCH, 413),
            ([], STRATEGIC, 400),
            ({"data": {"$patch": "dance"}}, STRATEGIC, None),  # the real server answers 500
            ("x", MERGE, 400),
        ):
            reply = await api.patch(path, patch, media)
            assert reply.code == code or (code is None and reply.code in {400, 500})
        assert (await api.get(path)).body["data"] == {"a": "1"}

    async def test_unknown_patch_types_are_rejected(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map())
        reply = await api.patch(api.path("configmaps", "c"), {}, "application/json")
        assert (reply.code, reply.body["reason"]) == (415, "UnsupportedMediaType")


class TestServerSideApply:
    async def apply(self, api: RawApi, manager: str, data: dict[str, str], query: str = "") -> Any:
        path = f"{api.path('configmaps', 'c')}?fieldManager={manager}{query}"
        return await api.patch(path, config_map(data=data), APPLY)

    async def test_apply_creates_updates_and_removes_fields(self, api: RawApi) -> None:
        created = await self.apply(api, "one", {"a": "1", "b": "2"})
        assert (created.code, created.body["data"]) == (201, {"a": "1", "b": "2"})
        assert [(e["manager"], e["operation"], e["fieldsV1"]) for e in created.metadata["managedFields"]] == [
            ("one", "Apply", {"f:data": {"f:a": {}, "f:b": {}}})
        ]
        updated = await self.apply(api, "one", {"b": "3"})
        assert (updated.code, updated.body["data"]) == (200, {"b": "3"})

    async def test_fields_of_other_managers_conflict(self, api: RawApi) -> None:
        await self.apply(api, "one", {"a": "1", "b": "2"})
        single = await self.apply(api, "two", {"a": "9"})
        assert single.code == 409
        assert single.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
        assert single.body["details"]["causes"] == [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}
        ]
        both = await self.apply(api, "two", {"a": "9", "b": "9"})
        assert both.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b'
        same = await self.apply(api, "two", {"a": "1"})
        assert same.code == 200

    async def test_force_takes_ownership(self, api: RawApi) -> None:
        await self.apply(api, "one", {"a": "1", "b": "2"})
        forced = await self.apply(api, "two", {"a": "9"}, "&force=true")
        assert (forced.code, forced.body["data"]) == (200, {"a": "9", "b": "2"})
        rest = await self.apply(api, "one", {"c": "3"})
        assert rest.body["data"] == {"a": "9", "c": "3"}

    async def test_updates_own_their_fields(self, api: RawApi) -> None:
        await self.apply(api, "one", {"a": "1"})
        await api.patch(f"{api.path('configmaps', 'c')}?fieldManager=editor", {"data": {"a": "2"}})
        refused = await self.apply(api, "one", {"a": "1"})
        assert refused.message == 'Apply failed with 1 conflict: conflict with "editor" using v1: .data.a'

    async def test_empty_map_does_not_conflict_with_its_children(self, api: RawApi) -> None:
        await self.apply(api, "one", {})
        await api.patch(f"{api.path('configmaps', 'c')}?fieldManager=editor", {"data": {"a": "1"}})
        reply = await self.apply(api, "two", {})
        assert (reply.code, reply.body["data"]) == (200, {"a": "1"})

    @pytest.mark.parametrize(
        "fields",
        [{"f:metadata": {}, "f:kind": {}}, {".": {}, "f:data": {}}, {"f:data": {"f:gone": {}, "f:a": {"f:below": {}}}}],
    )
    async def test_managed_fields_of_a_client_remove_nothing_that_every_object_has(
        self, api: RawApi, fields: dict[str, Any]
    ) -> None:
        created = await api.post(api.path("configmaps"), config_map(data={"a": "1"}))
        entry = {"manager": "one", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
        written = {"metadata": {"managedFields": [entry | {"fieldsV1": fields}]}}
        assert (await api.patch(api.path("configmaps", "c"), written)).code == 200
        reply = await self.apply(api, "one", {"b": "2"})
        assert (reply.code, reply.body["data"]["b"], reply.body["kind"]) == (200, "2", "ConfigMap")
        assert reply.metadata["uid"] == created.metadata["uid"]

    async def test_applied_object_has_no_managed_fields(self, api: RawApi) -> None:
        path = f"{api.path('configmaps', 'c')}?fieldManager=one"
        reply = await api.patch(path, config_map(managedFields=[{"manager": "one"}]), APPLY)
        assert (reply.code, reply.message) == (400, "metadata.managedFields must be nil")

    async def test_kubectl_keeps_the_annotation_of_client_side_apply(self, api: RawApi) -> None:
        last = "kubectl.kubernetes.io/last-applied-configuration"
        await api.post(api.path("configmaps"), config_map(annotations={last: "{}"}))
        applied = config_map(data={"a": "<&>é"}, annotations={"b": "c"})
        reply = await api.patch(f"{api.path('configmaps', 'c')}?fieldManager=kubectl&force=true", applied, APPLY)
        assert reply.code == 200, reply.body
        text = reply.metadata["annotations"][last]
        assert text.endswith("}\n")
        assert '"a":"\\u003c\\u0026\\u003eé"' in text
        shown = json.loads(text)
        assert (shown["data"], shown["metadata"]["annotations"]) == ({"a": "<&>é"}, {"b": "c"})

    async def test_field_manager_is_required(self, api: RawApi) -> None:
        reply = await api.patch(api.path("configmaps", "c"), config_map(), APPLY)
        assert reply.code == 422
        assert "fieldManager: Required value: is required for apply patch" in reply.message

    async def test_elements_of_keyed_lists_have_separate_owners(self, api: RawApi) -> None:
        path = await install(api, definition())
        target = f"{path}/applied?fieldManager="
        one = await api.patch(f"{target}one", widget("applied", parts=[{"id": "a", "count": 1}]), APPLY)
        assert one.code == 201, one.body
        two = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "applied"}}
        reply = await api.patch(f"{target}two", two | {"spec": {"parts": [{"id": "b", "count": 2}]}}, APPLY)
        assert reply.body["spec"]["parts"] == [{"id": "a", "count": 1}, {"id": "b", "count": 2}]
        conflict = await api.patch(f"{target}two", two | {"spec": {"parts": [{"id": "a", "count": 9}]}}, APPLY)
        assert conflict.message == 'Apply failed with 1 conflict: conflict with "one": .spec.parts[id="a"].count'
        gone = await api.patch(f"{target}two", two | {"spec": {}}, APPLY)
        assert gone.body["spec"]["parts"] == [{"id": "a", "count": 1}]

    async def test_the_status_belongs_to_its_subresource(self, api: RawApi) -> None:
        """Through the main endpoint it is ignored: nobody comes to own it, and it conflicts with nobody."""
        path = await install(api, definition())
        applied = widget("w") | {"status": {"phase": "a"}}
        created = await api.patch(f"{path}/w?fieldManager=one", applied, APPLY)
        assert "f:status" not in created.metadata["managedFields"][0]["fieldsV1"]
        status = {key: applied[key] for key in ("apiVersion", "kind", "metadata")} | {"status": {"phase": "b"}}
        written = await api.patch(f"{path}/w/status?fieldManager=two", status, APPLY)
        assert written.body["status"]["phase"] == "b"
        again = await api.patch(f"{path}/w?fieldManager=one", applied, APPLY)
        assert (again.code, again.body["status"]["phase"]) == (200, "b")
        owners = {one["manager"]: one["fieldsV1"].keys() for one in again.metadata["managedFields"]}
        assert owners["one"] == {"f:spec"}
        assert owners["two"] == {"f:status"}

    async def test_a_status_in_a_created_object_has_no_owner(self, api: RawApi) -> None:
        body = {"metadata": {"name": "s"}, "spec": {"clusterIP": "None"}}
        status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
        created = await api.post(api.path("services"), body | {"status": status})
        assert created.body["status"] == {"loadBalancer": {}}
        assert [one["fieldsV1"].keys() for one in created.metadata["managedFields"]] == [{"f:spec"}]


class TestFieldValidation:
    async def test_unknown_fields_are_pruned_with_a_warning(self, api: RawApi) -> None:
        reply = await api.post(api.path("pods"), pod(spec={"nonsense": 1}, foo="bar"))
        assert reply.code == 201
        assert sorted(reply.warnings) == [
            '299 - "unknown field \\"spec.containers[0].foo\\""',
            '299 - "unknown field \\"spec.nonsense\\""',
        ]
        assert "nonsense" not in reply.body["spec"]

    async def test_strict_validation_rejects_unknown_fields(self, api: RawApi) -> None:
        reply = await api.post(f"{api.path('pods')}?fieldValidation=Strict", pod(foo="bar"))
        assert (reply.code, reply.body["reason"]) == (400, "BadRequest")
        assert reply.message == (
            'Pod in version "v1" cannot be handled as a Pod: '
            'strict decoding error: unknown field "spec.containers[0].foo"'
        )

    async def test_ignore_prunes_without_a_warning(self, api: RawApi) -> None:
        reply = await api.post(f"{api.path('pods')}?fieldValidation=Ignore", pod(foo="bar"))
        assert (reply.code, reply.warnings) == (201, [])

    async def test_strict_validation_rejects_repeated_fields(self, api: RawApi) -> None:
        text = b'{"metadata": {"name": "c"}, "data": {"a": "1"}, "data": {"b": "2"}}'
        reply = await api.send("POST", f"{api.path('configmaps')}?fieldValidation=Strict", text)
        assert reply.message.endswith('strict decoding error: duplicate field "data"')

    async def test_strict_patch_names_the_unknown_field(self, api: RawApi) -> None:
        path = await install(api, definition())
        await api.post(path, widget("patched"))
        warned = await api.patch(f"{path}/patched", {"spec": {"nope": 1}})
        assert (warned.code, warned.warnings) == (200, ['299 - "unknown field \\"spec.nope\\""'])
        strict = await api.patch(f"{path}/patched?fieldValidation=Strict", {"spec": {"nope": 1}})
        assert strict.code == 422
        assert strict.message.startswith(' "" is invalid: patch: Invalid value: ')
        assert strict.message.endswith('strict decoding error: unknown field "spec.nope"')

    @pytest.mark.parametrize(
        ("container", "text"),
        [
            (
                {"tty": "yes"},
                "string into Go struct field Container.spec.containers.tty of type bool",
            ),
            (
                {"workingDir": 5},
                "number into Go struct field Container.spec.containers.workingDir of type string",
            ),
            (
                {"ports": {}},
                "object into Go struct field Container.spec.containers.ports of type []v1.ContainerPort",
            ),
            (
                {"resources": {"limits": {"cpu": "much"}}},
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
        ],
    )
    async def test_value_of_another_type_cannot_be_decoded(
        self, api: RawApi, container: dict[str, Any], text: str
    ) -> None:
        reply = await api.post(api.path("pods"), pod(**container))
        message = text if text.startswith("quantities") else f"json: cannot unmarshal {text}"
        assert (reply.code, reply.message) == (400, f'Pod in version "v1" cannot be handled as a Pod: {message}')
