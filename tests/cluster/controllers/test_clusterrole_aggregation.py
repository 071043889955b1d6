"""The aggregation controller: roles with an aggregationRule have the rules of the roles that they select."""

from typing import Any

from tests.support.background import in_background
from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.waiting import eventually
from trainwright.cluster.controllers.clusterrole_aggregation import ClusterRoleAggregation
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import CLUSTER_ROLES


def role(name: str, *rules: dict[str, Any], **labels: str) -> dict[str, Any]:
    named = {f"rbac.authorization.k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    return {"metadata": {"name": name, "labels": named}, "rules": list(rules)}


async def test_default_roles_get_the_rules_that_users_add() -> None:
    async with running_embedded() as embedded, Client(embedded.config) as client:

        async def rules_of(name: str) -> list[Any]:
            return (await client.get(CLUSTER_ROLES, name))["rules"] or []

        async with in_background(ClusterRoleAggregation(client).controller.run()):
            view = await eventually(lambda: rules_of("view"), bool)
            assert any("pods/log" in rule["resources"] for rule in view)
            jobs = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get"]}
            await client.create(CLUSTER_ROLES, role("jobs-view", jobs, aggregate_to_view="true"))
            for name in ("view", "edit", "admin"):  # each of them is part of the next one
                await eventually(lambda name=name: rules_of(name), lambda rules: jobs in rules)  # type: ignore[misc]
            await client.delete(CLUSTER_ROLES, "jobs-view")
            await eventually(lambda: rules_of("admin"), lambda rules: jobs not in rules)
