"""The checks of `metadata`, which all kinds share.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.raw_api import RawApi
from tests.support.objects.manifests import config_map

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}
BYTES = 256 * 1024


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"annotations": {"not a name": "x"}}, 'metadata.annotations: Invalid value: "not a name": '),
        ({"annotations": {"a": "x" * BYTES}}, f"metadata.annotations: Too long: may not be more than {BYTES} bytes"),
        ({"annotations": {"a": "é" * (BYTES // 2)}}, "metadata.annotations: Too long: "),
        ({"ownerReferences": [OWNER | {"uid": ""}]}, '.uid: Invalid value: "": must not be empty'),
        ({"ownerReferences": [OWNER, OWNER | {"kind": ""}]}, '.kind: Invalid value: "": must not be empty'),
        (
            {"ownerReferences": [OWNER | {"controller": True}, OWNER | {"controller": True, "name": "q", "uid": "2"}]},
            "Only one reference can have Controller set to true. Found",
        ),
        ({"generateName": "Not_"}, 'metadata.generateName: Invalid value: "Not_": '),
    ],
)
async def test_invalid_metadata_is_refused(api: RawApi, metadata: dict[str, Any], problem: str) -> None:
    reply = await api.post(api.path("configmaps"), config_map(**metadata))
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert problem in reply.message


async def test_annotations_may_fill_their_limit(api: RawApi) -> None:
    text = "é" * (BYTES // 2 - 1)
    reply = await api.post(api.path("configmaps"), config_map(annotations={"aa": text}))
    assert (reply.code, reply.metadata["annotations"]) == (201, {"aa": text})


async def test_several_owners_of_which_one_is_the_controller_are_kept(api: RawApi) -> None:
    owners = [OWNER | {"controller": True}, OWNER | {"name": "q", "uid": "2"}]
    reply = await api.post(api.path("configmaps"), config_map(ownerReferences=owners))
    assert (reply.code, reply.metadata["ownerReferences"]) == (201, owners)


async def test_empty_maps_and_lists_are_left_out(api: RawApi) -> None:
    empty: dict[str, Any] = {"labels": {}, "annotations": {}, "finalizers": [], "ownerReferences": []}
    reply = await api.post(api.path("configmaps"), config_map(**empty))
    assert reply.code == 201
    assert not empty.keys() & reply.metadata.keys()
