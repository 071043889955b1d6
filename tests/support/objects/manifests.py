"""Small objects that tests create on any API server."""

from typing import Any

from tests.support.cluster.raw_api import RawApi, Reply


def config_map(name: str = "c", data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return body | ({"data": data} if data else {})


def pod(name: str = "p", *, spec: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """A pod with one container; `spec` may replace even that."""
    main = {"name": "main", "image": "busybox"} | container
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return body | {"spec": {"containers": [main], **(spec or {})}}


def webhook_configuration(name: str) -> dict[str, Any]:
    """A ValidatingWebhookConfiguration that matches no resource."""
    webhook = {
        "name": "asks.nothing.example.com",
        "clientConfig": {"url": "https://127.0.0.1/"},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": name}, "webhooks": [webhook]}


async def bind(api: RawApi, name: str = "p", node: str = "n1") -> Reply:
    """Binds the pod to a node, as a scheduler does."""
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    return await api.post(api.path("pods", name, "binding"), binding)


def deployment(name: str = "web", *, replicas: int = 2, image: str = "busybox", **spec: Any) -> dict[str, Any]:
    """A Deployment with one container and the label `app: NAME`."""
    return _labelled("apps/v1", "Deployment", name, image, {"replicas": replicas, **spec})


def replica_set(name: str = "web", *, replicas: int = 2, image: str = "busybox", **spec: Any) -> dict[str, Any]:
    """A ReplicaSet with one container and the label `app: NAME`."""
    return _labelled("apps/v1", "ReplicaSet", name, image, {"replicas": replicas, **spec})


def batch_job(
    name: str = "pi", *, template: dict[str, Any] | None = None, restart_policy: str = "Never", **spec: Any
) -> dict[str, Any]:
    """A batch/v1 Job with one container; `template` is added to its pod spec."""
    pod_spec = {
        "containers": [{"name": "main", "image": "busybox"}],
        "restartPolicy": restart_policy,
        **(template or {}),
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod_spec}, **spec},
    }


def _labelled(api_version: str, kind: str, name: str, image: str, spec: dict[str, Any]) -> dict[str, Any]:
    containers = {"spec": {"containers": [{"name": "main", "image": image}]}}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}} | containers,
            **spec,
        },
    }
