"""The cluster process raises its limit of open files, its pods do not get it, and the Node offers what fits."""

import subprocess
import sys
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import container

PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from trainwright.cluster.node.machine import most_pods, raise_limit
print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], most_pods(), raise_limit())
"""


@pytest.mark.parametrize(
    ("soft", "hard", "pods"), [(1024, 16384, 1000), (1024, 1024, 170), (256, 1256, 248), (64, 64, 1)]
)
def test_limit_is_raised_and_capacity_follows(soft: int, hard: int, pods: int) -> None:
    program = PROGRAM.format(soft=soft, hard=hard)
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert [int(word) for word in output.split()] == [soft, hard, pods, soft]


def test_pods_have_the_limit_from_before(plain: Any) -> None:
    with plain.run(container("ulimit -n; ulimit -Hn"), openFiles=512) as pod:
        pod.wait()
    soft, hard = pod.output()
    assert soft == "512"
    assert hard != "512"
