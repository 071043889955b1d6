"""Requests that no well-behaved client sends: every one gets an answer that says what is wrong with it, never a 500.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import pytest

from tests.support.cluster.raw_api import APPLY, JSON_PATCH, STRATEGIC, RawApi
from tests.support.objects.manifests import config_map, pod, webhook_configuration
from tests.support.objects.widgets import DEFINITIONS, definition, install, widget

YAML = "application/yaml"
BIG = b"18446744073709551616"
BOMB = b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 8)
)


class TestPaths:
    @pytest.mark.parametrize("path", ["/version", "/version/", "/api/", "/apis/", "/"])
    async def test_served_with_and_without_a_slash_at_the_end(self, api: RawApi, path: str) -> None:
        assert (await api.get(path)).code == 200

    @pytest.mark.parametrize("path", ["/foo", "/foo/bar/baz", "/healthz/", "/livez/", "/openapi", "/apis/nowhere"])
    async def test_unknown_path_is_not_found(self, api: RawApi, path: str) -> None:
        reply = await api.get(path)
        assert (reply.code, reply.body) == (404, "404 page not found\n")


class TestNumbers:
    @pytest.mark.parametrize("number", [BIG, b"1e30", b"1.0", b"99999999999999999999999"])
    async def test_builtin_integer_must_be_one_of_64_bits(self, api: RawApi, number: bytes) -> None:
        body = b'{"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":%s,"containers":[]}}' % number
        reply = await api.send("POST", api.path("pods"), body)
        assert reply.code == 400
        assert "cannot unmarshal number" in reply.message
        assert "into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64" in reply.message

    async def test_builtin_integer_of_32_bits(self, api: RawApi) -> None:
        port = {"containerPort": 5_000_000_000}
        reply = await api.post(api.path("pods"), pod(ports=[port]))
        assert reply.code == 400
        assert reply.message.endswith("ContainerPort.spec.containers.ports.containerPort of type int32")

    async def test_custom_resource_keeps_a_number_beyond_64_bits_as_a_float(self, api: RawApi) -> None:
        path = await install(api, definition())
        reply = await api.post(path, widget(free={"number": int(BIG)}))
        assert (reply.code, float(reply.body["spec"]["free"]["number"])) == (201, float(BIG))

    @pytest.mark.parametrize("number", [int(BIG), 1e30])
    async def test_integer_of_a_custom_resource_has_64_bits(self, api: RawApi, number: float) -> None:
        path = await install(api, definition())
        parts = [{"id": "a", "count": number}]
        reply = await api.post(path, widget(parts=parts))
        assert reply.code == 422
        assert "spec.parts[0].count: Invalid value" in reply.message


class TestDeleteOptions:
    @pytest.mark.parametrize(
        "options",
        [
            b'{"propagationPolicy":[]}',
            b'{"dryRun":5}',
            b'{"dryRun":"All"}',
            b'{"gracePeriodSeconds":1e30}',
            b'{"gracePeriodSeconds":"5"}',
            b'{"preconditions":{"uid":5}}',
            b'{"orphanDependents":"x"}',
            b"[]",
        ],
    )
    async def test_wrong_type_is_refused_and_nothing_deleted(self, api: RawApi, options: bytes) -> None:
        await api.post(api.path("configmaps"), config_map())
        assert (await api.send("DELETE", api.path("configmaps", "c"), options)).code == 400
        assert (await api.get(api.path("configmaps", "c"))).code == 200

    async def test_unknown_dry_run_is_refused(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map())
        reply = await api.delete(api.path("configmaps", "c"), {"dryRun": ["x"]})
        assert (reply.code, reply.message) == (
            422,
            'DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"',
        )


class TestPatches:
    @pytest.mark.parametrize(
        "patch",
        [b"[[1]]", b'[{"op":["add"],"path":"/data"}]', b'[{"op":{},"path":"/data"}]', b'[{"op":"add","path":["x"]}]'],
    )
    async def test_malformed_json_patch(self, api: RawApi, patch: bytes) -> None:
        await api.post(api.path("configmaps"), config_map())
        reply = await api.send("PATCH", api.path("configmaps", "c"), patch, content_type=JSON_PATCH)
        assert reply.code in {400, 422}

    async def test_json_patch_with_too_many_operations(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map())
        patch = [{"op": "add", "path": "/data", "value": {}}] * 10_001
        reply = await api.patch(api.path("configmaps", "c"), patch, JSON_PATCH)
        assert reply.code == 413
        assert "The allowed maximum operations in a JSON patch is 10000, got 10001" in reply.message

    async def test_json_patch_whose_copies_grow_without_end(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map(data={"a": "x" * 1000}))
        patch = [{"op": "copy", "from": "/data", "path": f"/data/{n}"} for n in range(40)]
        reply = await api.patch(api.path("configmaps", "c"), patch, JSON_PATCH)
        assert reply.code in {400, 413, 422}

    @pytest.mark.parametrize("directive", [b"5", b'{"a":1}'])
    async def test_malformed_retain_keys(self, api: RawApi, directive: bytes) -> None:
        await api.post(api.path("pods"), pod())
        patch = b'{"spec":{"$retainKeys":%s}}' % directive
        reply = await api.send("PATCH", api.path("pods", "p"), patch, content_type=STRATEGIC)
        assert reply.code == 400


class TestYaml:
    async def test_dates_times_and_keys_are_strings(self, api: RawApi) -> None:
        data = b"data:\n  a: 2020-13-45\n  b: 2020-10-10\n  c: 12:30:45\n  5: x\n  true: z\n"
        body = b"metadata:\n  name: dates\n" + data
        reply = await api.send("POST", api.path("configmaps"), body, content_type=YAML)
        assert reply.code == 201, reply.body
        assert reply.body["data"] == {"a": "2020-13-45", "b": "2020-10-10", "c": "12:30:45", "5": "x", "true": "z"}

    async def test_date_that_does_not_exist_can_be_applied(self, api: RawApi) -> None:
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: 2020-13-45}\n"
        path = api.path("configmaps", "c") + "?fieldManager=x"
        reply = await api.send("PATCH", path, body, content_type=APPLY)
        assert (reply.code, reply.body["data"]) == (201, {"a": "2020-13-45"})

    @pytest.mark.parametrize(
        "body",
        [
            b"data:\n  ? [a]\n  : x\n",
            BOMB,
            b"a: [\n",
            b"\x00",
            pytest.param(b"[" * 200_000, id="deep flow"),
            pytest.param(b"- " * 200_000, id="deep block"),
        ],
    )
    async def test_what_is_no_document_of_json_types(self, api: RawApi, body: bytes) -> None:
        reply = await api.send("POST", api.path("configmaps"), body, content_type=YAML)
        assert reply.code == 400


class TestReviews:
    @pytest.mark.parametrize("body", [b"[]", b'{"spec":5}'])
    async def test_malformed_review(self, api: RawApi, body: bytes) -> None:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert (await api.send("POST", path, body)).code == 400


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "why"),
        [
            ("(", "missing closing ): `(`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("\\1", "invalid escape sequence: `\\1`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("*", "missing argument to repetition operator: `*`"),
        ],
    )
    async def test_what_go_does_not_understand_is_refused(self, api: RawApi, pattern: str, why: str) -> None:
        crd = definition("patterned")
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"] = {**spec["properties"], "title": {"type": "string", "pattern": pattern}}
        reply = await api.post(DEFINITIONS, crd)
        assert reply.code == 422
        assert f"must be a valid regular expression, but isn't: error parsing regexp: {why}" in reply.message

    async def test_no_pattern_takes_long(self, api: RawApi) -> None:
        """Python's own regular expressions would take longer than the age of the universe."""
        crd = definition("patients")
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"] = {**spec["properties"], "title": {"type": "string", "pattern": "^(a+)+$"}}
        path = await install(api, crd)
        body = widget(title="a" * 100_000 + "!") | {"kind": "Patient"}
        reply = await api.post(path, body)
        assert reply.code == 422
        assert "spec.title in body should match '^(a+)+$'" in reply.message


class TestSelectors:
    @pytest.mark.parametrize("term", [{}, {"operator": "In"}, {"key": "a", "operator": "Is"}])
    async def test_webhook_with_a_malformed_selector_is_refused(self, api: RawApi, term: dict[str, str]) -> None:
        body = webhook_configuration(f"{api.namespace}-selector")
        body["webhooks"][0]["objectSelector"] = {"matchExpressions": [term]}
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        reply = await api.post(path, body)
        assert reply.code == 422
        assert "webhooks[0].objectSelector.matchExpressions[0]" in reply.message
        assert (await api.post(api.path("configmaps"), config_map("still-possible"))).code == 201


class TestWarnings:
    async def test_control_characters_of_a_body_are_not_in_headers(self, api: RawApi) -> None:
        reply = await api.post(api.path("configmaps"), config_map("warned") | {"a\r\nX-Injected: b\x1b": 1})
        assert reply.code == 201
        assert not any(set(warning) & set("\r\n\x1b") for warning in reply.warnings)
