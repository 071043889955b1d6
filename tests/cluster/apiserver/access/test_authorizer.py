"""The authorizer decides as a naive reading of all RBAC objects would, after any sequence of changes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.rules import PolicyRule, missing_rules
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource

NAMESPACES = ("a", "b")
USERS = ("ann", "bob", "system:serviceaccount:a:robot")
GROUPS = ("team", "ops")
VERBS = ("get", "list", "create")
RESOURCES = ("pods", "secrets", "pods/log", "*", "*/log")
PATHS = ("/healthz", "/logs/x", "/logs/")


def subset(*values: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)


resource_rules = st.fixed_dictionaries(
    {"verbs": subset(*VERBS, "*"), "apiGroups": subset("", "apps", "*"), "resources": subset(*RESOURCES)},
    optional={"resourceNames": subset("x", "y")},
)
path_rules = st.fixed_dictionaries({"verbs": subset(*VERBS, "*"), "nonResourceURLs": subset(*PATHS, "/logs/*", "*")})
rules = st.lists(st.one_of(resource_rules, path_rules), max_size=3)
subjects = st.one_of(
    st.sampled_from([{"kind": "User", "name": name} for name in USERS]),
    st.sampled_from([{"kind": "Group", "name": name} for name in GROUPS]),
    st.sampled_from([{"kind": "ServiceAccount", "name": "robot"}, {"kind": "ServiceAccount", "name": "robot",
                                                                   "namespace": "a"}]),
)  # fmt: skip


@dataclass(frozen=True)
class Write:
    """A change of one object; `body` is None for its removal."""

    resource: Resource
    namespace: str
    name: str
    body: Any


@st.composite
def writes(draw: st.DrawFn) -> Write:
    resource = draw(st.sampled_from([ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS]))
    namespace = draw(st.sampled_from(NAMESPACES)) if resource.namespaced else ""
    name = draw(st.sampled_from(["one", "two"]))
    if draw(st.integers(0, 4)) == 0:
        return Write(resource, namespace, name, None)
    if resource in (ROLES, CLUSTER_ROLES):
        return Write(resource, namespace, name, {"rules": draw(rules)})
    kinds = ["Role", "ClusterRole"] if resource.namespaced else ["ClusterRole"]
    reference = {"kind": draw(st.sampled_from(kinds)), "name": draw(st.sampled_from(["one", "two", "none"]))}
    return Write(
        resource, namespace, name, {"roleRef": reference, "subjects": draw(st.lists(subjects, min_size=1, max_size=2))}
    )


wanted_attributes = st.one_of(
    st.builds(
        Attributes,
        verb=st.sampled_from(VERBS),
        group=st.sampled_from(["", "apps"]),
        resource=st.sampled_from(["pods", "secrets"]),
        subresource=st.sampled_from(["", "log"]),
        namespace=st.sampled_from(["", *NAMESPACES]),
        name=st.sampled_from(["", "x", "z"]),
    ),
    st.builds(Attributes, verb=st.sampled_from(VERBS), path=st.sampled_from(PATHS)),
)
users = st.builds(
    UserInfo, name=st.sampled_from(USERS), groups=st.lists(st.sampled_from(GROUPS), max_size=1).map(tuple)
)


def naive_rule_allows(rule: dict[str, Any], wanted: Attributes) -> bool:
    def has(field: str, *values: str) -> bool:
        return any(value in rule.get(field, []) for value in ("*", *values))

    if not has("verbs", wanted.verb):
        return False
    if wanted.path:
        return any(
            url == wanted.path or (url.endswith("*") and wanted.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs", [])
        )
    resources = [wanted.resource]
    if wanted.subresource:
        resources = [f"{wanted.resource}/{wanted.subresource}", f"*/{wanted.subresource}"]
    named = "resourceNames" not in rule or wanted.name in rule["resourceNames"]
    return has("apiGroups", wanted.group) and has("resources", *resources) and named


def naive_allows(objects: dict[tuple[Resource, str, str], Any], user: UserInfo, wanted: Attributes) -> bool:
    for (resource, namespace, _name), body in objects.items():
        if resource not in (ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS):
            continue
        if resource is ROLE_BINDINGS and wanted.namespace != namespace:
            continue
        if not any(naive_is_subject(one, namespace, user) for one in body["subjects"]):
            continue
        reference = body["roleRef"]
        role = (ROLES, namespace) if reference["kind"] == "Role" else (CLUSTER_ROLES, "")
        found = objects.get((*role, reference["name"]), {"rules": []})
        if any(naive_rule_allows(rule, wanted) for rule in found["rules"]):
            return True
    return False


def naive_is_subject(subject: dict[str, Any], namespace: str, user: UserInfo) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    if subject["kind"] == "User":
        return bool(subject["name"] == user.name)
    return user.name == f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}"


async def apply(store: ObjectStore, write: Write, objects: dict[tuple[Resource, str, str], Any]) -> None:
    """Writes to the store, and to the dictionary that the naive reading uses."""
    key = (write.resource, write.namespace, write.name)
    metadata = {"name": write.name, "namespace": write.namespace}
    if write.body is None:
        if objects.pop(key, None) is None:
            return
        result: Any = Removed({"metadata": metadata})
    else:
        objects[key] = write.body
        result = {"metadata": metadata, **write.body}
    await store.guaranteed_update(write.resource.qualified_plural, write.namespace, write.name, lambda _old: result)


@given(
    st.lists(writes(), max_size=6),
    st.lists(writes(), max_size=6),
    st.lists(st.tuples(users, wanted_attributes), min_size=1, max_size=8),
)
def test_decisions_equal_those_of_a_naive_reading(
    before: Sequence[Write], after: Sequence[Write], questions: Sequence[tuple[UserInfo, Attributes]]
) -> None:
    async def run() -> None:
        store = ObjectStore(None)
        objects: dict[tuple[Resource, str, str], Any] = {}
        for write in before:
            await apply(store, write, objects)
        authorizer = Authorizer(store)
        for user, wanted in questions:
            assert authorizer.authorize(user, wanted).allowed is naive_allows(objects, user, wanted)
        for write in after:
            await apply(store, write, objects)
        for user, wanted in questions:
            assert authorizer.authorize(user, wanted).allowed is naive_allows(objects, user, wanted)

    asyncio.run(run())


async def test_one_of_two_bindings_of_a_user_can_go() -> None:
    store, objects = ObjectStore(None), dict[tuple[Resource, str, str], Any]()
    authorizer, ann = Authorizer(store), UserInfo("ann")
    for namespace in NAMESPACES:
        role = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
        binding = {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "ann"}]}
        await apply(store, Write(ROLES, namespace, "r", role), objects)
        await apply(store, Write(ROLE_BINDINGS, namespace, "b", binding), objects)

    await apply(store, Write(ROLE_BINDINGS, "a", "b", None), objects)

    allowed = [authorizer.authorize(ann, Attributes("get", "", "pods", "", one)).allowed for one in NAMESPACES]
    assert allowed == [False, True]


@given(rules, rules, wanted_attributes)
def test_covered_rules_allow_nothing_new(own: list[Any], given_away: list[Any], wanted: Attributes) -> None:
    """Who may write a role because own rules cover it can do everything that the role allows."""
    mine, role = [PolicyRule.read(one) for one in own], [PolicyRule.read(one) for one in given_away]
    if not missing_rules(mine, role) and any(rule.allows(wanted) for rule in role):
        assert any(rule.allows(wanted) for rule in mine)


@given(rules)
def test_rules_cover_themselves(own: list[Any]) -> None:
    mine = [PolicyRule.read(one) for one in own]
    assert not missing_rules(mine, mine)
