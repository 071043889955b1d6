"""CRDs and custom resources.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.raw_api import STRATEGIC, TABLE, RawApi
from tests.support.objects.widgets import DEFINITIONS, definition, install, widget


class TestCustomResources:
    async def test_defaults_and_pruning(self, api: RawApi) -> None:
        path = await install(api, definition())
        body = widget(
            zz=1, labels={"k": {"a": 1, "b": 2}}, parts=[{"id": "1", "u": 1}], size=None, maybe=None, title=None
        )
        body["metadata"]["foo"] = 1
        reply = await api.post(path, body | {"status": {"size": 9}})
        assert reply.code == 201, reply.body
        assert reply.body["spec"] == {
            "color": "red",
            "size": 3,
            "maybe": None,
            "labels": {"k": {"a": 1}},
            "parts": [{"id": "1", "count": 7}],
        }
        assert "status" not in reply.body
        assert reply.warnings == [
            '299 - "unknown field \\"metadata.foo\\""',
            '299 - "unknown field \\"spec.labels.k.b\\""',
            '299 - "unknown field \\"spec.parts[0].u\\""',
            '299 - "unknown field \\"spec.zz\\""',
        ]
        await api.delete(f"{path}/w")

    @pytest.mark.parametrize(
        ("spec", "field", "reason", "message"),
        [
            (
                {"color": "green"},
                "spec.color",
                "FieldValueNotSupported",
                'Unsupported value: "green": supported values: "red", "blue"',
            ),
            (
                {"size": 99},
                "spec.size",
                "FieldValueInvalid",
                "Invalid value: 99: spec.size in body should be less than or equal to 10",
            ),
            (
                {"size": 0},
                "spec.size",
                "FieldValueInvalid",
                "Invalid value: 0: spec.size in body should be greater than or equal to 1",
            ),
            (
                {"size": "x"},
                "spec.size",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.size in body must be of type integer: "string"',
            ),
            (
                {"title": "ABC"},
                "spec.title",
                "FieldValueInvalid",
                "Invalid value: \"ABC\": spec.title in body should match '^[a-z]+$'",
            ),
            (
                {"title": "a"},
                "spec.title",
                "FieldValueInvalid",
                'Invalid value: "a": spec.title in body should be at least 2 chars long',
            ),
            ({"title": "abcdefg"}, "spec.title", "FieldValueTooLong", "Too long: may not be more than 5 bytes"),
            (
                {"port": 1.5},
                "spec.port",
                "FieldValueTypeInvalid",
                'Invalid value: "number": spec.port in body must be of type integer,string: "number"',
            ),
            (
                {"when": "abc"},
                "spec.when",
                "FieldValueTypeInvalid",
                'Invalid value: "abc": spec.when in body must be of type date-time: "abc"',
            ),
            (
                {"ratio": "a"},
                "spec.ratio",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.ratio in body must be of type number: "string"',
            ),
            (
                {"lit": "a"},
                "spec.lit",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.lit in body must be of type boolean: "string"',
            ),
            (
                {"parts": []},
                "spec.parts",
                "FieldValueInvalid",
                "Invalid value: 0: spec.parts in body should have at least 1 items",
            ),
            (
                {"parts": [{"id": str(n)} for n in range(3)]},
                "spec.parts",
                "FieldValueTooMany",
                "Too many: 3: must have at most 2 items",
            ),
            (
                {"parts": [{"id": "1"}, {"id": "1"}]},
                "spec.parts[1]",
                "FieldValueDuplicate",
                'Duplicate value: {"id":"1"}',
            ),
            ({"parts": [{}]}, "spec.parts[0].id", "FieldValueRequired", "Required value"),
            (
                {"parts": "x"},
                "spec.parts",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.parts in body must be of type array: "string"',
            ),
            ({"tags": ["a", "a"]}, "spec.tags[1]", "FieldValueDuplicate", 'Duplicate value: "a"'),
            (
                {"labels": {"x": {"a": "b"}}},
                "spec.labels.x.a",
                "FieldValueTypeInvalid",
                'Invalid value: "string": spec.labels.x.a in body must be of type integer: "string"',
            ),
            (
                {"free": []},
                "spec.free",
                "FieldValueTypeInvalid",
                'Invalid value: "array": spec.free in body must be of type object: "array"',
            ),
            ({"embedded": {"kind": "X"}}, "spec.embedded.apiVersion", "FieldValueRequired", "Required value"),
            (
                {"either": {}},
                "<nil>",
                "FieldValueInvalid",
                'Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found none valid',
            ),
        ],
    )
    async def test_violations(self, api: RawApi, spec: dict[str, Any], field: str, reason: str, message: str) -> None:
        path = await install(api, definition())
        reply = await api.post(path, widget(**spec))
        assert (reply.code, reply.body["reason"]) == (422, "Invalid")
        assert {"reason": reason, "message": message, "field": field} in reply.body["details"]["causes"]
        assert reply.message.startswith('Widget.example.com "w" is invalid: ')

    async def test_missing_fields_are_required(self, api: RawApi) -> None:
        path = await install(api, definition())
        body = widget()
        del body["spec"]
        reply = await api.post(path, body)
        assert reply.message == 'Widget.example.com "w" is invalid: spec: Required value'
        assert reply.body["details"] == {
            "name": "w",
            "group": "example.com",
            "kind": "Widget",
            "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec"}],
        }

    async def test_body_must_match_version_and_kind_of_the_path(self, api: RawApi) -> None:
        path = await install(api, definition())
        version = await api.post(path, widget() | {"apiVersion": "example.com/v2"})
        assert (version.code, version.message) == (
            400,
            "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)",
        )
        kind = await api.post(path, widget() | {"kind": "Wodget"})
        assert (kind.code, kind.message) == (
            422, 'Wodget.example.com "w" is invalid: kind: Invalid value: "Wodget": must be Widget',
        )  # fmt: skip

    async def test_update_needs_a_resource_version(self, api: RawApi) -> None:
        path = await install(api, definition())
        await api.post(path, widget("unversioned"))
        reply = await api.put(f"{path}/unversioned", widget("unversioned", size=4))
        assert reply.code == 422
        assert reply.message == (
            'widgets.example.com "unversioned" is invalid: metadata.resourceVersion: Invalid value: 0: '
            "must be specified for an update"
        )

    async def test_status_spec_and_generation(self, api: RawApi) -> None:
        path = await install(api, definition())
        created = await api.post(path, widget("split"))
        assert created.metadata["generation"] == 1
        status = await api.patch(f"{path}/split/status", {"spec": {"size": 9}, "status": {"size": 2}})
        assert (status.body["spec"]["size"], status.body["status"]) == (3, {"size": 2})
        assert status.metadata["generation"] == 1
        main = await api.patch(f"{path}/split", {"spec": {"size": 4}, "status": {"size": 7}})
        assert (main.body["spec"]["size"], main.body["status"]) == (4, {"size": 2})
        assert main.metadata["generation"] == 2
        labelled = await api.patch(f"{path}/split", {"metadata": {"labels": {"a": "b"}}})
        assert labelled.metadata["generation"] == 2
        sneaky = await api.patch(f"{path}/split/status", {"metadata": {"labels": {"a": "z"}}, "status": {"size": 3}})
        assert sneaky.metadata["labels"] == {"a": "b"}

    async def test_each_endpoint_validates_the_fields_that_it_writes(self, api: RawApi) -> None:
        path = await install(api, definition())
        created = await api.post(path, widget("judged") | {"status": 5})
        assert created.code == 201, created.body
        wrong = await api.patch(f"{path}/judged/status", {"status": 5})
        assert (wrong.code, wrong.body["details"]["causes"][0]["field"]) == (422, "status")
        assert (await api.patch(f"{path}/judged", {"status": 5, "spec": {"size": 4}})).code == 200
        stored = (await api.get(f"{path}/judged")).body
        reply = await api.put(f"{path}/judged/status", stored | {"spec": {"size": 99}, "status": {"size": 1}})
        assert (reply.code, reply.body["spec"]["size"], reply.body["status"]) == (200, 4, {"size": 1})

    async def test_scale(self, api: RawApi) -> None:
        path = await install(api, definition())
        await api.post(path, widget("scaled"))
        scale = await api.get(f"{path}/scaled/scale")
        assert (scale.body["kind"], scale.body["apiVersion"]) == ("Scale", "autoscaling/v1")
        assert (scale.body["spec"], scale.body["status"]) == ({"replicas": 3}, {"replicas": 0})
        reply = await api.patch(f"{path}/scaled/scale", {"spec": {"replicas": 4}})
        assert reply.body["spec"] == {"replicas": 4}
        assert (await api.get(f"{path}/scaled")).body["spec"]["size"] == 4
        negative = await api.patch(f"{path}/scaled/scale", {"spec": {"replicas": -1}})
        assert ".spec.size: Invalid value: -1: should be a non-negative integer" in negative.message

    async def test_strategic_merge_patches_need_go_types(self, api: RawApi) -> None:
        path = await install(api, definition())
        await api.post(path, widget("plain"))
        reply = await api.patch(f"{path}/plain", {"spec": {"size": 4}}, STRATEGIC)
        assert (reply.code, reply.body["reason"]) == (415, "UnsupportedMediaType")
        assert reply.message == (
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        )

    async def test_immutable_field(self, api: RawApi) -> None:
        path = await install(api, definition("gadgets", rules=True))
        await api.post(path, widget("fixed", "Gadget", frozen="a"))
        reply = await api.patch(f"{path}/fixed", {"spec": {"frozen": "b"}})
        assert (reply.code, reply.message) == (
            422, 'Gadget.example.com "fixed" is invalid: spec.frozen: Invalid value: "b": is immutable',
        )  # fmt: skip
        assert (await api.patch(f"{path}/fixed", {"spec": {"size": 5}})).code == 200
        invalid = await api.post(path, widget("broken", "Gadget", size="x"))
        assert "some validation rules were not checked because the object was invalid" in invalid.message

    async def test_columns(self, api: RawApi) -> None:
        path = await install(api, definition())
        await api.post(path, widget("shown"))
        conditions = [{"type": "Created"}, {"type": "Running"}]
        await api.patch(f"{path}/shown/status", {"status": {"conditions": conditions}})
        reply = await api.get(f"{path}/shown", TABLE)
        assert [column["name"] for column in reply.body["columnDefinitions"]] == ["Name", "State", "Size", "Age"]
        assert reply.body["rows"][0]["cells"][:3] == ["shown", "Running", 3]
        assert reply.body["rows"][0]["cells"][3].endswith("s")

    async def test_custom_resource_is_discovered(self, api: RawApi) -> None:
        await install(api, definition())
        legacy = await api.get("/apis/example.com/v1")
        resources = {one["name"]: one for one in legacy.body["resources"]}
        assert {"widgets", "widgets/status", "widgets/scale"} <= resources.keys()
        assert resources["widgets"]["shortNames"] == ["wi"]
        assert resources["widgets"]["categories"] == ["all"]
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        reply = await api.get("/apis", accept)
        assert reply.content_type.startswith("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        group = next(one for one in reply.body["items"] if one["metadata"].get("name") == "example.com")
        found = {one["resource"]: one for one in group["versions"][0]["resources"]}
        assert found["widgets"]["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
        assert {one["subresource"] for one in found["widgets"]["subresources"]} == {"scale", "status"}

    async def test_group_without_a_dot_is_rejected(self, api: RawApi) -> None:
        """Built-in groups such as `apps` have none, so no CRD replaces a built-in kind."""
        crd = definition("deployments")
        crd["metadata"]["name"], crd["spec"]["group"] = "deployments.apps", "apps"
        reply = await api.post(DEFINITIONS, crd)
        assert reply.code == 422
        assert 'spec.group: Invalid value: "apps": should be a domain with at least one dot' in reply.message

    async def test_unknown_conversion_strategy_is_rejected(self, api: RawApi) -> None:
        crd = definition("gears")
        crd["spec"]["conversion"] = {"strategy": "Magic"}
        reply = await api.post(DEFINITIONS, crd)
        assert reply.code == 422
        assert 'spec.conversion.strategy: Unsupported value: "Magic"' in reply.message

    async def test_invalid_crd_is_rejected(self, api: RawApi) -> None:
        wrong = definition("gizmos")
        wrong["metadata"]["name"] = "other.example.com"
        wrong["spec"]["versions"][0]["storage"] = False
        wrong["spec"]["scope"] = "Somewhere"
        reply = await api.post(DEFINITIONS, wrong)
        assert reply.code == 422
        fields = {cause["field"] for cause in reply.body["details"]["causes"]}
        assert {"metadata.name", "spec.versions", "spec.scope"} <= fields
        assert (
            'metadata.name: Invalid value: "other.example.com": must be spec.names.plural+"."+spec.group'
            in reply.message
        )
