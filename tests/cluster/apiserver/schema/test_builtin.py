"""The schemas of built-in kinds equal those of the real server."""

import json
import subprocess
import sys

import pytest

from tests.support.kubernetes.controlplane import ROOT, ControlPlane

pytestmark = pytest.mark.apiserver


def test_schemas_equal_those_of_the_real_server(control_plane: ControlPlane) -> None:
    tool = ROOT / "tools" / "builtin-schemas"
    command = [sys.executable, str(tool), str(control_plane.kubectl), str(control_plane.kubeconfig)]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = (ROOT / "src/trainwright/cluster/apiserver/schema/builtin.json").read_text()
    assert json.loads(kept) == json.loads(made), "run tools/builtin-schemas (see its first lines)"
