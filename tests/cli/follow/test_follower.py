"""What is said while the cluster cannot be reached: warnings of watches once, and advice."""

import io
import logging

import pytest

from trainwright.cli.follow.follower import WatchWarnings, unreachable_advice
from trainwright.cli.output.console import Console
from trainwright.cli.targets import Target
from trainwright.kube.client.kubeconfig import ClusterConfig


def test_the_same_warning_of_several_watches_is_shown_once() -> None:
    stream = io.StringIO()
    handler = WatchWarnings(Console(stream, tty=False, colours=False))
    for watch in ("pods", "events"):
        text = f"{watch}: cannot connect to https://127.0.0.1:26443; trying again"
        handler.handle(logging.LogRecord("trainwright.kube", logging.WARNING, "", 1, text, None, None))
    assert stream.getvalue() == "Warning: cannot connect to https://127.0.0.1:26443; trying again\n"


def test_the_first_warning_is_followed_by_advice() -> None:
    stream = io.StringIO()
    handler = WatchWarnings(Console(stream, tty=False, colours=False), "start it again")
    for text in ("pods: lost it; trying again", "pods: cannot connect; trying again"):
        handler.handle(logging.LogRecord("trainwright.kube", logging.WARNING, "", 1, text, None, None))
    assert stream.getvalue().splitlines() == [
        "Warning: lost it; trying again",
        "  start it again",
        "Warning: cannot connect; trying again",
    ]


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
