"""`trainwright events` on the embedded cluster and on the real kube-apiserver."""

import json

from tests.cli.commands.jobs.conftest import Cluster
from tests.support.objects.shell_jobs import shell_job
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS


def event(
    cluster: Cluster, about: Object, reason: str, *, type_: str = "Normal", count: int = 1, message: str = ""
) -> None:
    reference = {"apiVersion": "v1", "namespace": cluster.namespace, **about}
    cluster.client.create(
        EVENTS,
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{about['name']}.{reason}".lower(), "namespace": cluster.namespace},
            "involvedObject": reference,
            "reason": reason,
            "message": message or f"about {about['name']}",
            "type": type_,
            "count": count,
            "lastTimestamp": "2099-01-01T00:00:00Z",
        },
    )


def test_events_of_a_job_and_its_pods_are_listed(cluster: Cluster) -> None:
    job = cluster.create(shell_job("digits", "true", runPolicy={"suspend": True}))
    event(cluster, {"kind": "PyTorchJob", "name": "digits", "uid": job["metadata"]["uid"]}, "OfTheJob")
    event(cluster, {"kind": "Pod", "name": "digits-master-0"}, "OfItsPod", type_="Warning", count=3)
    event(cluster, {"kind": "Pod", "name": "digits-2-master-0"}, "OfAnotherPod")
    event(cluster, {"kind": "PyTorchJob", "name": "digits", "uid": "earlier"}, "OfAnEarlierRun")

    listed = json.loads(cluster.succeed("events", "digits", "-o", "json"))["items"]
    assert {"OfTheJob", "OfItsPod"} <= {one["reason"] for one in listed}
    assert not {"OfAnotherPod", "OfAnEarlierRun"} & {one["reason"] for one in listed}
    warnings = cluster.succeed("events", "digits", "--warnings").splitlines()
    assert warnings[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert warnings[-1].split()[1:] == [
        "(x3)", "Warning", "OfItsPod", "pod/digits-master-0", "about", "digits-master-0",
    ]  # fmt: skip
    assert "OfAnotherPod" in cluster.succeed("events")


def test_messages_cannot_control_the_terminal(embedded_namespace: Cluster) -> None:
    cluster = embedded_namespace
    job = cluster.create(shell_job("digits", "true", runPolicy={"suspend": True}))
    about = {"kind": "PyTorchJob", "name": "digits", "uid": job["metadata"]["uid"]}
    event(cluster, about, "Titled", message="\x1b]0;title\x07\x1b[31mred\x1b[2J")

    for command in ("events", "describe"):
        printed = cluster.succeed(command, "digits")
        assert "red" in printed
        assert "\x1b" not in printed


def test_no_events_are_no_error(real: Cluster) -> None:
    result = real.call("events")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"No events found in {real.namespace} namespace.\n"
