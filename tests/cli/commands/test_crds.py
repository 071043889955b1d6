"""`trainwright crds`: the CustomResourceDefinitions as a manifest."""

import yaml
from click.testing import CliRunner

from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.cli.main import cli


def test_every_crd_is_printed_as_yaml() -> None:
    result = CliRunner().invoke(cli, ["crds"])
    assert result.exit_code == 0
    assert list(yaml.safe_load_all(result.output)) == [render_crd(kind) for kind in KINDS.values()]
