"""The ValidatingWebhookConfiguration of an operator whose webhooks the API server reaches without certificates: the
embedded cluster calls them in its own process. On other clusters the chart installs it."""

from collections.abc import Iterable

from trainwright.api.kinds import GROUP, VERSION, Kind
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import VALIDATING_WEBHOOK_CONFIGURATIONS
from trainwright.operator.options import WebhookOptions
from trainwright.operator.setup.crds import create_or_replace


def webhook_path(kind: str) -> str:
    """Upstream's path of the webhook for a kind."""
    return f"/validate-{GROUP.replace('.', '-')}-{VERSION}-{kind.lower()}"


def webhook_configuration(kinds: Iterable[Kind], namespace: str, names: WebhookOptions) -> Object:
    """As the chart renders it, for the operator's Service in this namespace."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": names.configuration},
        "webhooks": [
            {
                "name": f"validator.{kind.singular}.training-operator.kubeflow.org",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {
                    "service": {"name": names.service, "namespace": namespace, "path": webhook_path(kind.name)}
                },
                "rules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [kind.plural],
                    }
                ],
            }
            for kind in kinds
        ],
    }


async def register_webhooks(client: Client, kinds: Iterable[Kind], namespace: str, names: WebhookOptions) -> None:
    """Creates or replaces the configuration."""
    configuration = webhook_configuration(kinds, namespace, names)
    await create_or_replace(client, VALIDATING_WEBHOOK_CONFIGURATIONS, configuration, "webhooks")
