"""The rendered objects fit the schemas of all supported versions of Kubernetes.

The newest version is tested by its own API server: see test_installation.
"""

import json
from pathlib import Path

import pytest

from tests.support.commands.helm import VARIANTS, Helm
from tests.support.kubernetes.api_schemas import ApiSchema, versions
from trainwright.objects import Object


@pytest.fixture(scope="module")
def rendered(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    objects: list[Object] = []
    for number, values in enumerate(VARIANTS.values()):
        path = tmp_path_factory.mktemp("values") / f"{number}.yaml"
        path.write_text(json.dumps(values))
        objects += helm.render("--values", path).values()
    return objects


def test_there_is_a_schema_for_each_minor_version() -> None:
    assert [path.name.split(".")[1] for path in versions()] == [str(minor) for minor in range(27, 35)]


@pytest.mark.parametrize("minor", range(27, 35))
def test_a_version_knows_every_field(rendered: list[Object], minor: int) -> None:
    schema = ApiSchema.read(directory_of(minor))
    errors = {f"{one['kind']} {one['metadata']['name']}: {error}" for one in rendered for error in schema.errors(one)}
    assert errors == set()


def test_unknown_fields_and_wrong_types_are_found(rendered: list[Object]) -> None:
    schema = ApiSchema.read(directory_of(27))
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "imge": "x"}]}}
    assert schema.errors(pod) == [".spec.containers[0].imge"]
    pod["spec"]["containers"] = [{"name": 7}]
    assert schema.errors(pod) == [".spec.containers[0].name: 7 is not of {'scalar': 'string'}"]
    crd = next(one for one in rendered if one["kind"] == "CustomResourceDefinition")
    wrong = json.loads(json.dumps(crd).replace('"additionalPrinterColumns"', '"printerColumns"'))
    assert schema.errors(wrong) == [".spec.versions[].printerColumns"]


def directory_of(minor: int) -> Path:
    (found,) = (path for path in versions() if path.name.startswith(f"v0.{minor}."))
    return found
