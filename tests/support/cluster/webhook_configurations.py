"""A ValidatingWebhookConfiguration for tests of the operator's webhooks."""

from trainwright.objects import Object


def webhook_configuration(name: str) -> Object:
    """Calls this machine, but for no resource."""
    webhook = {
        "name": "asks.nothing.example.com",
        "clientConfig": {"url": "https://127.0.0.1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": name}, "webhooks": [webhook]}
