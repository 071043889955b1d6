"""What is said while the cluster cannot be reached."""

import pytest

from trainwright.cli.follow.session import unreachable_advice
from trainwright.cli.targets import Target
from trainwright.kube.client.kubeconfig import ClusterConfig


@pytest.mark.parametrize(
    ("embedded", "advice"),
    [
        (True, "waiting for the cluster; if it is not running, its jobs continue after `trainwright up --detach -d x`"),
        (False, "waiting for the cluster; Ctrl-C leaves its jobs as they are"),
    ],
)
def test_advice_about_an_unreachable_cluster_claims_nothing_about_its_pods(*, embedded: bool, advice: str) -> None:
    target = Target(ClusterConfig(server="https://127.0.0.1:1"), embedded, "kubectl", flags=" -d x")
    assert unreachable_advice(target) == advice
