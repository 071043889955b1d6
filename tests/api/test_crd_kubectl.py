"""kubectl and the CRD on the real API server: apply, explain, and strict validation of jobs."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder, pair, template
from tests.support.waiting import eventually
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.objects import Object

pytestmark = pytest.mark.apiserver

OF_THE_FIRST_OPERATOR = """\
apiVersion: "kubeflow.org/v1"
kind: "PyTorchJob"
metadata:
  name: "pytorch-train"
spec:
  cleanPodPolicy: None
  backoffLimit: 3
  activeDeadlineSeconds: 86400
  ttlSecondsAfterFinished: 600
  pytorchReplicaSpecs:
    master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        metadata:
          annotations:
            sidecar.istio.io/inject: "false"
        spec:
          containers:
            - name: pytorch
              image: pytorch/pytorch:1.5-cuda10.1-cudnn7-runtime
              command: ["sh", "-c", "python train.py --backend gloo"]
              resources:
                limits:
"""


class Kubectl:
    def __init__(self, plane: ControlPlane, binary: Path, namespace: str) -> None:
        self._command = [str(binary), f"--kubeconfig={plane.kubeconfig}", f"--namespace={namespace}"]

    def __call__(self, *arguments: str, stdin: Object | str = "", fails: bool | None = False) -> str:
        """The output, with errors and warnings. `fails`: whether the command must fail; None: it may."""
        text = stdin if isinstance(stdin, str) else json.dumps(stdin)
        done = subprocess.run(
            [*self._command, *arguments],
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert fails is None or (done.returncode != 0) is fails, done.stdout
        return done.stdout


@pytest.fixture
def kubectl(control_plane: ControlPlane, kubectl_binary: Path, real_namespace: str) -> Kubectl:
    return Kubectl(control_plane, kubectl_binary, real_namespace)


def job(builder: JobBuilder) -> Object:
    raw = builder.raw()
    return {**raw, "metadata": {"name": raw["metadata"]["name"]}}


@pytest.mark.parametrize("flags", [(), ("--server-side", "--force-conflicts")], ids=["client", "server"])
def test_crd_can_be_applied_on_client_and_server_side(kubectl: Kubectl, flags: tuple[str, ...]) -> None:
    output = kubectl("apply", *flags, "-f", "-", stdin=render_crd(PYTORCH))
    assert "customresourcedefinition.apiextensions.k8s.io/pytorchjobs.kubeflow.org" in output
    assert kubectl("diff", *flags[:1], "-f", "-", stdin=render_crd(PYTORCH)) == ""


@pytest.mark.parametrize(
    ("field", "description"),
    [
        ("runPolicy", "Specifies when the job fails, and what is deleted after it has finished."),
        ("runPolicy.backoffLimit", "Number of restarts of pods before the job fails."),
        ("cleanPodPolicy", "Deprecated: use spec.runPolicy.cleanPodPolicy"),
    ],
)
async def test_kubectl_explains_fields(kubectl: Kubectl, field: str, description: str) -> None:
    async def explain() -> str:
        return kubectl("explain", f"pytorchjob.spec.{field}", fails=None)

    # The API server publishes the schema a moment after another test has applied the CRD.
    await eventually(explain, lambda output: description in output)


def test_manifest_for_the_first_operator_is_accepted(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=OF_THE_FIRST_OPERATOR) == "pytorchjob.kubeflow.org/pytorch-train created\n"
    spec = json.loads(kubectl("get", "pytorchjob", "pytorch-train", "-o", "json"))["spec"]
    assert (spec["cleanPodPolicy"], spec["backoffLimit"], spec["activeDeadlineSeconds"]) == ("None", 3, 86400)


@pytest.mark.parametrize(
    ("path", "builder"),
    [
        ("spec.runPolicy.backofLimit", JobBuilder().master().run_policy(backofLimit=3)),
        ("spec.runPolicy.schedulingPolicy.que", JobBuilder().master().run_policy(schedulingPolicy={"que": "a"})),
        ("spec.elasticPolicy.minReplica", JobBuilder().workers(1).spec(elasticPolicy={"minReplica": 1})),
        (
            "spec.elasticPolicy.metrics[0].resource.target.averageUtilisation",
            JobBuilder()
            .workers(1)
            .spec(
                elasticPolicy={
                    "metrics": [
                        {
                            "type": "Resource",
                            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilisation": 80}},
                        }
                    ]
                }
            ),
        ),
        ("spec.nProcPerNode", JobBuilder().master().spec(nProcPerNode="2")),
        ("spec.pytorchReplicaSpec", JobBuilder().master().spec(pytorchReplicaSpec={})),
    ],
)
def test_misspelt_field_outside_a_template_is_rejected_or_warned_about_by_name(
    kubectl: Kubectl, path: str, builder: JobBuilder
) -> None:
    refused = kubectl("apply", "-f", "-", stdin=job(builder), fails=True)
    assert f'strict decoding error: unknown field "{path}"' in refused
    warned = kubectl("apply", "--validate=warn", "-f", "-", stdin=job(builder))
    assert f'Warning: unknown field "{path}"' in warned


def test_replica_rejects_unknown_fields_but_its_pod_preserves_them(kubectl: Kubectl) -> None:
    closed = JobBuilder().master()
    closed.object["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolcy"] = "Never"
    refused = kubectl("apply", "-f", "-", stdin=job(closed), fails=True)
    assert 'unknown field "spec.pytorchReplicaSpecs.Master.restartPolcy"' in refused
    kubectl("apply", "-f", "-", stdin=job(JobBuilder().master(pod=template(fieldOfTheFuture=1))))


@pytest.mark.parametrize(
    ("path", "misspelt"), [("metadata.lables", {"metadata": {"lables": {"a": "b"}}}), ("metdata", {"metdata": {}})]
)
def test_unknown_field_of_a_template_outside_its_spec_is_rejected_by_name(
    kubectl: Kubectl, path: str, misspelt: Object
) -> None:
    """Only the spec is passed to the pods unchanged, where the API server validates it."""
    refused = kubectl("apply", "-f", "-", stdin=job(JobBuilder().master(pod={**template(), **misspelt})), fails=True)
    assert f'unknown field "spec.pytorchReplicaSpecs.Master.template.{path}"' in refused


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (
            JobBuilder().master(policy="Sometimes"),
            'Master.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            JobBuilder().master().run_policy(cleanPodPolicy="none"),
            'spec.runPolicy.cleanPodPolicy: Unsupported value: "none": supported values: "All", "Running", "None"',
        ),
        (
            JobBuilder().master().spec(cleanPodPolicy="none"),
            'spec.cleanPodPolicy: Unsupported value: "none": supported values: "All", "Running", "None"',
        ),
        (JobBuilder().workers(100_001), "should be less than or equal to 100000"),
        (JobBuilder(), "should have at least 1 properties"),
        (JobBuilder().master().run_policy(schedulingPolicy={"minResources": {"cpu": "lots"}}), "minResources.cpu"),
        (JobBuilder().master().run_policy(schedulingPolicy={"minAvailable": -1}), "minAvailable"),
        (
            JobBuilder().workers(1).spec(elasticPolicy={"metrics": [{"type": "Resource", "resource": {"name": "c"}}]}),
            "spec.elasticPolicy.metrics[0].resource.target: Required value",
        ),
    ],
)
def test_invalid_values_are_rejected_by_the_schema(kubectl: Kubectl, builder: JobBuilder, message: str) -> None:
    assert message in kubectl("apply", "-f", "-", stdin=job(builder), fails=True)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_kubectl_get_shows_state_and_age_and_with_wide_more_columns(kubectl: Kubectl, kind: Kind) -> None:
    kubectl("apply", "-f", "-", stdin=job(pair("digits", kind)))
    status = {
        "startTime": "2026-11-15T04:00:00Z",
        "completionTime": "2026-11-15T04:00:05Z",
        "conditions": [
            {"type": "Created", "status": "True"},
            {"type": "Failed", "status": "True", "message": f"{kind.name} digits is failed because 1 Worker failed."},
        ],
    }
    patch = json.dumps({"status": status})
    kubectl("patch", kind.singular, "digits", "--subresource=status", "--type=merge", "-p", patch)
    shown = [column.upper() for column in kind.columns]
    usual, wide = kubectl("get", kind.plural), kubectl("get", kind.plural, "-o", "wide")
    assert usual.splitlines()[0].split() == ["NAME", *shown]
    assert "Failed" in usual.splitlines()[1].split()[1:]
    assert wide.splitlines()[0].split() == ["NAME", *shown, "STARTED", "FINISHED", "MESSAGE"]
    assert wide.splitlines()[1].endswith(f"{kind.name} digits is failed because 1 Worker failed.")


def test_workers_can_be_scaled_to_0_although_a_new_job_needs_one(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=job(JobBuilder().master().workers(2)))
    assert kubectl("scale", "pytorchjob", "digits", "--replicas=0") == "pytorchjob.kubeflow.org/digits scaled\n"
