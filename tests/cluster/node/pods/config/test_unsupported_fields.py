"""The fields of a pod that have no effect on this node."""

from typing import Any

from tests.support.cluster.runtime_configs import container, pod, run, warnings
from trainwright.cluster.node.pods.config.unsupported_fields import unsupported_fields


def test_unsupported_fields_are_listed_once() -> None:
    subject = pod(
        container(
            resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            resources={"limits": {"cpu": "1", "example.com/fpga": 1}},
            terminationMessagePolicy="FallbackToLogsOnError",
            terminationMessagePath="/dev/termination-log",
            stdin=False,
        ),
        hostPID=True,
        securityContext={"runAsUser": 5},
        dnsPolicy="ClusterFirst",
        nodeSelector={"a": "b"},
    )
    assert unsupported_fields(subject, "overlay") == (
        "spec.hostPID",
        "spec.containers[0].resizePolicy",
        "spec.containers[0].resources.limits[example.com/fpga]",
        "resources (cpu and memory are counted by the scheduler but not enforced)",
    )
    assert warnings(subject)["FieldNotHonoured"].startswith("without effect on this node: spec.hostPID, ")


def test_an_unknown_field_is_listed_as_unsupported() -> None:
    assert unsupported_fields(pod(container(quantumLevel=3), newField={"a": 1}), "overlay") == (
        "spec.newField",
        "spec.containers[0].quantumLevel",
    )


def test_an_ordinary_pod_has_no_unsupported_fields() -> None:
    defaults: dict[str, Any] = {
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "x"}],
    }
    one = container(imagePullPolicy="Always", resources={}, terminationMessagePath="/dev/termination-log")
    assert run(pod(one, **defaults)).warnings == ()


def test_fields_that_need_a_stronger_sandbox_are_listed_at_plain() -> None:
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory"}}]
    one = container(volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}], args=["/v"])
    assert unsupported_fields(pod(one, volumes=volumes), "overlay") == ()
    assert unsupported_fields(pod(one, volumes=volumes), "plain") == (
        "spec.containers[0].volumeMounts[0].readOnly",
        "spec.volumes[0].emptyDir.medium",
    )
