"""The aggregation controller: fills the rules of ClusterRoles that have an aggregationRule, such as `admin`."""

import logging
from collections.abc import Iterable

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import CLUSTER_ROLES
from trainwright.objects.selectors import read_label_selector

log = logging.getLogger(__name__)


class ClusterRole(View, frozen=True):
    metadata: ObjectMeta
    rules: list[Object] | None = None
    aggregation_rule: Object | None = None


class ClusterRoleAggregation:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._roles = Store[ClusterRole]()
        reflector = Reflector(client, CLUSTER_ROLES, self._roles, convert=ClusterRole, on_change=self._changed)
        self.controller: Controller[str] = Controller(self._reconcile, log=log, reflectors=[reflector], workers=1)

    def _changed(self, _before: ClusterRole | None, _after: ClusterRole | None) -> None:
        """Any role can be part of an aggregated one, also one that is aggregated itself."""
        for role in self._roles.all():
            if role.aggregation_rule:
                self.controller.queue.add(role.metadata.name)

    async def _reconcile(self, name: str) -> None:
        role = self._roles.get(name)
        if role is None or not role.aggregation_rule:
            return
        rules = aggregated_rules(role, self._roles.all())
        if rules == (role.rules or []):
            return
        patch = {"metadata": {"resourceVersion": role.metadata.resource_version}, "rules": rules}
        try:
            await self._client.patch(CLUSTER_ROLES, name, patch)
        except (Conflict, NotFound):
            return  # the watch brings the change


def aggregated_rules(role: ClusterRole, roles: Iterable[ClusterRole]) -> list[Object]:
    """The rules of all other roles that a selector matches, each rule once; roles in the order of their names."""
    others = [other for other in roles if other.metadata.name != role.metadata.name]
    rules: list[Object] = []
    for selector in (role.aggregation_rule or {}).get("clusterRoleSelectors") or ():
        wanted = read_label_selector(selector)
        for other in sorted(others, key=lambda other: other.metadata.name):
            if wanted.matches(other.metadata.labels or {}):
                rules += [rule for rule in other.rules or () if rule not in rules]
    return rules
