"""Item 72: the errors and warnings of admission. The real API server calls our webhooks, under upstream's names."""

import base64
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder, pair, template
from tests.support.waiting import eventually
from trainwright.api.job_admission import review
from trainwright.api.kinds import KINDS, Kind
from trainwright.api.kinds.jax import JAX
from trainwright.api.kinds.paddle import PADDLE
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.api.kinds.xgboost import XGBOOST
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.credentials import load_certificate
from trainwright.kube.client.errors import Forbidden, Invalid
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object
from trainwright.objects.resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from trainwright.operator.serving.http_server import Address, route, serving
from trainwright.operator.serving.webhook_certificates import renewed
from trainwright.operator.serving.webhook_handlers import webhook_handlers
from trainwright.operator.setup.webhook_installation import webhook_path

REPLICAS = "spec.pytorchReplicaSpecs"
CONTAINERS = f"{REPLICAS}[Worker].template.spec.containers"
DEPRECATED = "spec.elasticPolicy.nProcPerNode is deprecated, use spec.nprocPerNode instead"
NAME_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)

MANAGERS = '"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"'


class Row(NamedTuple):
    job: JobBuilder
    refused: tuple[str, ...] = ()
    """The messages in their order."""
    warned: tuple[str, ...] = ()


def valid(name: str = "test") -> JobBuilder:
    return JobBuilder(name).master(policy="OnFailure").workers(1, policy="OnFailure")


ROWS = {
    "valid": Row(
        valid().run_policy(managedBy="kubeflow.org/training-operator").spec(elasticPolicy={"rdzvBackend": "c10d"})
    ),
    "a name that is no DNS label": Row(
        valid("0-test"), (f'metadata.name: Invalid value: "0-test": should match: {NAME_RULE}',)
    ),
    "no containers": Row(
        JobBuilder("test").workers(1, pod={"spec": {"containers": []}}),
        (
            f"{CONTAINERS}: Required value: must be specified",
            f"{CONTAINERS}: Required value: must have at least one container with name pytorch",
        ),
    ),
    "an empty image": Row(
        JobBuilder("test").workers(1, pod=template(image="")),
        (f"{CONTAINERS}[0].image: Required value: must be required",),
    ),
    "no container of the right name": Row(
        JobBuilder("test").workers(1, pod=template(name="main")),
        (f"{CONTAINERS}: Required value: must have at least one container with name pytorch",),
    ),
    "two masters": Row(
        JobBuilder("test").replica("Master", 2), (f"{REPLICAS}[Master].replicas: Forbidden: must be 1",)
    ),
    "a master without a number": Row(
        JobBuilder("test").replica("Master", None), (f"{REPLICAS}[Master].replicas: Forbidden: must be 1",)
    ),
    "no workers at all": Row(
        JobBuilder("test").workers(0).spec(elasticPolicy={}),
        (f"{REPLICAS}[Worker].replicas: Forbidden: must be at least 1",),
    ),
    "an unknown role": Row(
        JobBuilder("test").replica("Chief", 1),
        (f'{REPLICAS}[Chief]: Unsupported value: "Chief": supported values: "Master", "Worker"',),
    ),
    "the old field": Row(valid().spec(elasticPolicy={"nProcPerNode": 1}), warned=(DEPRECATED,)),
    "the old field beside the new": Row(
        valid().spec(elasticPolicy={"nProcPerNode": 1}, nprocPerNode="1"),
        ("spec.elasticPolicy.nProcPerNode: Forbidden: must not be used with spec.nprocPerNode",),
        (DEPRECATED,),
    ),
    "a manager that does not exist": Row(
        valid().run_policy(managedBy="other"),
        (f'spec.runPolicy.managedBy: Unsupported value: "other": supported values: {MANAGERS}',),
    ),
    "elastic without workers": Row(
        JobBuilder("test").master().spec(elasticPolicy={}),
        (f"{REPLICAS}[Worker]: Required value: must be configured if elastic policy is used",),
    ),
    "several errors": Row(
        JobBuilder("0-test").replica("Master", 2),
        (
            f'metadata.name: Invalid value: "0-test": should match: {NAME_RULE}',
            f"{REPLICAS}[Master].replicas: Forbidden: must be 1",
        ),
    ),
}


def rows_of(kind: Kind) -> Iterator[tuple[str, Row]]:
    """What all kinds have in common. `role` is one that every job of the kind has."""
    role = "Worker" if kind is JAX else "Master"
    containers = f"spec.{kind.replicas_field}[{role}].template.spec.containers"
    # Upstream quotes the name for PaddleJobs alone.
    name = '"paddle"' if kind is PADDLE else kind.container
    missing = f"{containers}: Required value: must have at least one container with name {name}"

    def job(pod: Object | None = None, name: str = "test") -> JobBuilder:
        return JobBuilder(name, kind=kind).replica(role, 1, pod=pod)

    yield "valid", Row(job().run_policy(managedBy="kubeflow.org/training-operator"))
    wrong_name = f'metadata.name: Invalid value: "00test": should match: {NAME_RULE}'
    yield "a name that is no DNS label", Row(job(name="00test"), (wrong_name,))
    empty: Object = {"spec": {"containers": []}}
    yield "no containers", Row(job(empty), (f"{containers}: Required value: must be specified", missing))
    no_image = f"{containers}[0].image: Required value: must be required"
    yield "an empty image", Row(job(template(name=kind.container, image="")), (no_image,))
    yield "no container of the right name", Row(job(template(name="main")), (missing,))
    other = f'spec.runPolicy.managedBy: Unsupported value: "other": supported values: {MANAGERS}'
    yield "a manager that does not exist", Row(job().run_policy(managedBy="other"), (other,))
    # Upstream runs a TFJob with any roles: a row of docs/compatibility.md.
    roles = ", ".join(f'"{one.name}"' for one in kind.roles)
    unknown = f'spec.{kind.replicas_field}[Banana]: Unsupported value: "Banana": supported values: {roles}'
    yield "an unknown role", Row(job().replica("Banana", 1), (unknown,))


XGB = "spec.xgbReplicaSpecs"
ROWS |= {
    "TFJob: a chief and a master": Row(
        JobBuilder("test", kind=TENSORFLOW).replica("Chief").replica("Master"),
        ("spec.tfReplicaSpecs: Forbidden: must not have more than 1 Chief or Master role",),
    ),
    "XGBoostJob: two masters": Row(
        JobBuilder("test", kind=XGBOOST).replica("Master", 2), (f"{XGB}[Master].replicas: Forbidden: must be 1",)
    ),
    "XGBoostJob: no master": Row(
        JobBuilder("test", kind=XGBOOST).workers(1), (f"{XGB}[Master]: Required value: must be present",)
    ),
    **{f"{kind.name}: {about}": row for kind in (TENSORFLOW, XGBOOST, PADDLE, JAX) for about, row in rows_of(kind)},
}


@pytest.mark.parametrize("about", ROWS)
def test_item_72_admission_as_reviewed(about: str) -> None:
    row = ROWS[about]
    answer = review(row.job.kind, row.job.raw())
    assert tuple(str(error) for error in answer.errors) == row.refused
    assert answer.warnings == row.warned


class WarningClient(Client):
    """A client that keeps the warnings of the last response."""

    warnings: tuple[str, ...] = ()

    async def send(self, request: Request) -> Response:
        response = await super().send(request)
        header = response.headers.get("warning", "")
        self.warnings = (header.removeprefix('299 - "').removesuffix('"'),) if header else ()
        return response


@pytest.fixture
async def webhooks(control_plane: ControlPlane, real_namespace: str) -> AsyncIterator[WarningClient]:
    """A client of a server that calls this test's webhook for jobs of this namespace only."""
    certificates = renewed(None, ["127.0.0.1"], datetime.now(UTC))
    assert certificates is not None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(tls, certificates.server, certificates.server_key)
    pages = route(webhook_handlers(KINDS))
    async with (
        WarningClient(control_plane.config) as client,
        serving("test", Address("127.0.0.1", 0), pages, tls=tls) as port,
    ):
        registered = configuration(real_namespace, f"https://127.0.0.1:{port}", certificates.authority)
        await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, registered)
        try:
            # The server calls a new webhook with a delay.
            for kind in KINDS.values():
                unknown = JobBuilder("test", kind=kind).replica("Banana")
                await eventually(lambda: refusal(client, real_namespace, unknown), bool)  # noqa: B023 (awaited at once)
            yield client
        finally:
            await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, registered["metadata"]["name"])


@pytest.mark.apiserver
async def test_item_72_admission(webhooks: WarningClient, real_namespace: str) -> None:
    for about, row in ROWS.items():
        text = row.refused[0] if len(row.refused) == 1 else f"[{', '.join(row.refused)}]"
        webhook = f"validator.{row.job.kind.singular}.training-operator.kubeflow.org"
        expected = f'admission webhook "{webhook}" denied the request: {text}' if row.refused else None
        assert await refusal(webhooks, real_namespace, row.job) == expected, about
        assert webhooks.warnings == row.warned, about


@pytest.mark.apiserver
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
async def test_item_72_a_manifest_without_replicas(webhooks: WarningClient, real_namespace: str, kind: Kind) -> None:
    """The server calls the webhook only if the whole spec is missing. The schema refuses the rest, also an empty map,
    which upstream accepts (a row of docs/compatibility.md)."""
    field = kind.replicas_field
    raw = {**JobBuilder("test", kind=kind).raw(), "metadata": {"name": "test", "namespace": real_namespace}}
    del raw["spec"]
    with pytest.raises(Forbidden, match=rf"spec\.{field}: Required value: must be required"):
        await webhooks.create(kind.resource, raw)
    for spec, reason in (
        ({}, "Required value"),
        ({field: None}, "Required value"),
        ({field: {}}, "Invalid value: 0: .* should have at least 1 properties"),
    ):
        with pytest.raises(Invalid, match=rf"spec\.{field}: {reason}"):
            await webhooks.create(kind.resource, {**raw, "spec": spec})


@pytest.mark.apiserver
async def test_item_72_the_manager_of_a_job_cannot_be_changed(webhooks: WarningClient, real_namespace: str) -> None:
    """Upstream's check of PyTorchJobs compares the new value with itself, and JAXJobs have none: the row on `managedBy`
    of docs/compatibility.md."""
    for kind in KINDS.values():
        owned = pair("owned", kind).run_policy(managedBy="kubeflow.org/training-operator")
        for builder in (owned, pair("unowned", kind)):
            assert await refusal(webhooks, real_namespace, builder, dry_run=False) is None
        for name in ("owned", "unowned"):
            patch = {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}}
            with pytest.raises((Invalid, Forbidden), match=r"spec\.runPolicy\.managedBy: Invalid value: .*immutable"):
                await webhooks.patch(kind.resource, name, patch, namespace=real_namespace)


async def refusal(client: Client, namespace: str, builder: JobBuilder, *, dry_run: bool = True) -> str | None:
    """The message with which the server refuses the job; None if it accepts it."""
    job = builder.raw()
    job["metadata"] = {"name": job["metadata"]["name"], "namespace": namespace}
    try:
        await client.raw(
            "POST", builder.kind.resource.path(namespace), body=job, params={"dryRun": "All"} if dry_run else None
        )
    except Forbidden as refused:
        return refused.message
    return None


def configuration(namespace: str, url: str, authority: bytes) -> Object:
    return {
        "apiVersion": VALIDATING_WEBHOOK_CONFIGURATIONS.api_version,
        "kind": VALIDATING_WEBHOOK_CONFIGURATIONS.kind,
        "metadata": {"name": f"validator.{namespace}"},
        "webhooks": [
            {
                "name": f"validator.{kind.singular}.training-operator.kubeflow.org",
                "clientConfig": {
                    "url": f"{url}{webhook_path(kind.name)}",
                    "caBundle": base64.b64encode(authority).decode(),
                },
                "rules": [
                    {
                        "apiGroups": ["kubeflow.org"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [kind.plural],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
                "sideEffects": "None",
            }
            for kind in KINDS.values()
        ],
    }
