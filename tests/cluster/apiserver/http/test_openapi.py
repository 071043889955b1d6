"""The OpenAPI documents, on the embedded server and on the real one."""

from collections.abc import Iterator
from typing import Any

from tests.support.cluster.raw_api import RawApi


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


def schema_of(schemas: dict[str, Any], group: str, version: str, kind: str) -> Any:
    wanted = {"group": group, "version": version, "kind": kind}
    return next(one for one in schemas.values() if wanted in one.get("x-kubernetes-group-version-kind", ()))


async def test_version_2_describes_every_kind_and_is_complete(api: RawApi) -> None:
    reply = await api.get("/openapi/v2")

    document = reply.body
    assert (reply.code, document["swagger"]) == (200, "2.0")
    definitions = document["definitions"]
    config_map = schema_of(definitions, "", "v1", "ConfigMap")
    assert set(config_map["properties"]) == {"apiVersion", "binaryData", "data", "immutable", "kind", "metadata"}
    assert schema_of(definitions, "apps", "v1", "Deployment")["properties"]["spec"]
    pods = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]
    assert pods["patch"]["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    known = {f"#/definitions/{name}" for name in definitions}
    known |= {f"#/parameters/{name}" for name in document.get("parameters", ())}
    assert set(references(document)) <= known


async def test_version_3_lists_a_document_of_every_group_version(api: RawApi) -> None:
    index = (await api.get("/openapi/v3")).body["paths"]

    assert {"api/v1", "apis/apps/v1", "apis/batch/v1", "apis/certificates.k8s.io/v1"} <= index.keys()
    apps = (await api.get(index["apis/apps/v1"]["serverRelativeURL"])).body
    assert schema_of(apps["components"]["schemas"], "apps", "v1", "Deployment")["properties"]["spec"]
