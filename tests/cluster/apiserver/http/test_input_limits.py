"""What one request can make of the server is bounded in bytes, time and depth.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import gzip

import pytest

from tests.support.cluster.raw_api import JSON_PATCH, RawApi
from tests.support.objects.manifests import config_map
from tests.support.objects.widgets import DEFINITIONS, definition, install

YAML = "application/yaml"
MEBIBYTE = 1024 * 1024


class TestSizes:
    async def test_data_of_a_config_map(self, api: RawApi) -> None:
        assert (await api.post(api.path("configmaps"), config_map(data={"a": "x" * MEBIBYTE}))).code == 201
        reply = await api.post(api.path("configmaps"), config_map("d", data={"a": "x" * (MEBIBYTE + 1)}))
        assert reply.code == 422
        assert "Too long: may not be more than 1048576 bytes" in reply.message

    async def test_binary_data_of_a_config_map(self, api: RawApi) -> None:
        binary = {"a": "QUFB" * (MEBIBYTE // 3 + 1)}
        reply = await api.post(api.path("configmaps"), config_map() | {"binaryData": binary})
        assert reply.code == 422

    async def test_data_of_a_secret(self, api: RawApi) -> None:
        secret = {"metadata": {"name": "s"}, "stringData": {"a": "x" * (MEBIBYTE + 1)}}
        reply = await api.post(api.path("secrets"), secret)
        assert reply.code == 422
        assert "data: Too long: may not be more than 1048576 bytes" in reply.message

    async def test_prefix_of_a_generated_name(self, api: RawApi) -> None:
        reply = await api.post(api.path("configmaps"), {"metadata": {"generateName": "x" * 300}})
        assert reply.code == 422
        assert "metadata.generateName: Invalid value" in reply.message
        reply = await api.post(api.path("configmaps"), {"metadata": {"generateName": "fine-"}})
        assert reply.code == 201

    async def test_object_that_its_defaults_make_too_large(self, api: RawApi) -> None:
        crd = definition("defaulted")
        versions = crd["spec"]["versions"]
        element = {"type": "object", "properties": {"text": {"type": "string", "default": "x" * 10_000}}}
        versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
            "type": "object",
            "properties": {"parts": {"type": "array", "items": element}},
        }
        await install(api, crd)
        body = {"apiVersion": "example.com/v1", "kind": "Defaulted", "metadata": {"name": "d"}}
        path = api.path("defaulted", group="apis/example.com/v1")
        reply = await api.post(path, body | {"spec": {"parts": [{}] * 1000}})
        assert reply.code in {422, 500}
        assert (await api.get(f"{path}/d")).code == 404

    async def test_object_that_patches_make_too_large(self, api: RawApi) -> None:
        crd = definition("growing")
        kept = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = kept
        await install(api, crd)
        path = api.path("growing", group="apis/example.com/v1")
        body = {"apiVersion": "example.com/v1", "kind": "Growing", "metadata": {"name": "g"}, "spec": {}}
        assert (await api.post(path, body)).code == 201
        replies = [
            await api.patch(f"{path}/g", [{"op": "add", "path": f"/spec/a{n}", "value": "x" * MEBIBYTE}], JSON_PATCH)
            for n in range(4)
        ]
        assert replies[-1].code == 500
        assert "too large" in replies[-1].message or "larger than max" in replies[-1].message

    async def test_message_does_not_repeat_a_long_operation(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map())
        reply = await api.patch(api.path("configmaps", "c"), [{"op": "x" * 100_000}], JSON_PATCH)
        assert reply.code in {400, 422}


class TestExpansion:
    async def test_aliases_of_a_long_text(self, api: RawApi) -> None:
        text = b"metadata: {name: c}\ndata:\n  a: &a '" + b"x" * 20_000 + b"'\n"
        body = text + b"".join(b"  k%d: *a\n" % number for number in range(500))
        reply = await api.send("POST", api.path("configmaps"), body, content_type=YAML)
        assert reply.code in {400, 422}

    @pytest.mark.parametrize("encoding", ["gzip", "deflate"])
    async def test_compressed_body_is_not_expanded(self, api: RawApi, encoding: str) -> None:
        body = gzip.compress(b'{"metadata":{"name":"c"}}' + b" " * 1_000_000)
        headers = {"Content-Encoding": encoding}
        reply = await api.send("POST", api.path("configmaps"), body, headers=headers)
        assert reply.code == 400
        assert "must be of type ConfigMap" in reply.message


class TestColumns:
    @pytest.mark.parametrize("end", ["", ":"])
    async def test_index_with_thousands_of_digits(self, api: RawApi, end: str) -> None:
        crd = definition("sliced" if end else "indexed")
        column = {"name": "A", "type": "string", "jsonPath": f".spec[{'9' * 5000}{end}]"}
        crd["spec"]["versions"][0]["additionalPrinterColumns"] = [column]
        reply = await api.post(DEFINITIONS, crd)
        assert reply.code in {201, 422}
