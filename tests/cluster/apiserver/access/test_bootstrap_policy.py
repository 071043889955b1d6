"""The default roles and bindings equal those of the real server."""

import json
import subprocess
import sys

import pytest

from tests.support.kubernetes.controlplane import ROOT, ControlPlane
from trainwright.cluster.apiserver.access.bootstrap_policy import default_policy, with_missing_policy


@pytest.mark.apiserver
def test_policy_equals_that_of_the_real_server(control_plane: ControlPlane) -> None:
    command = [sys.executable, str(ROOT / "tools/bootstrap-policy"), str(control_plane.kubectl)]
    made = subprocess.run([*command, str(control_plane.kubeconfig)], check=True, capture_output=True, text=True).stdout
    assert default_policy() == json.loads(made), "run tools/bootstrap-policy (see its first lines)"


def test_missing_rules_are_added_unless_the_object_refuses() -> None:
    [default] = [
        one for one in default_policy() if one["metadata"]["name"] == "system:public-info-viewer" and "rules" in one
    ]
    assert with_missing_policy(default, default) is None
    own = {"verbs": ["get"], "nonResourceURLs": ["/mine"]}
    assert with_missing_policy(default | {"rules": [own]}, default) == default | {"rules": [own, *default["rules"]]}
    frozen = default | {"rules": [own], "metadata": {"name": "x", "annotations": {}}}
    assert with_missing_policy(frozen, default) is None
