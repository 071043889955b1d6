"""Nobody gives others more permissions than they have, whatever they write."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.object_stores import put, store_with
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.users import ADMIN, UserInfo
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.objects import Object
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource

GROUP = "rbac.authorization.k8s.io"
EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
ANN = UserInfo("ann")


def rule(verb: str, resource: str, *names: str, group: str = "") -> Object:
    named = {"resourceNames": list(names)} if names else {}
    return {"verbs": [verb], "apiGroups": [group], "resources": [resource], **named}


def role(*rules: Object, **fields: Any) -> Object:
    return {"metadata": {"name": "r"}, "rules": list(rules), **fields}


def binding(kind: str = "ClusterRole", name: str = "given") -> Object:
    return {"metadata": {"name": "b"}, "roleRef": {"kind": kind, "name": name}}


async def authorizer_with(*rules: Object, namespace: str = "", given: Object | None = None) -> Authorizer:
    """Of a cluster in which ann has these rules, in a namespace or everywhere, and there is a ClusterRole `given`."""
    subjects = [{"kind": "User", "name": "ann"}]
    bound = {"roleRef": {"kind": "ClusterRole", "name": "own"}, "subjects": subjects}
    metadata = {"name": "own", "namespace": namespace} if namespace else {"name": "own"}
    store = await store_with(
        (CLUSTER_ROLES, {"metadata": {"name": "own"}, "rules": list(rules)}),
        (ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS, {"metadata": metadata, **bound}),
    )
    if given is not None:
        await put(store, CLUSTER_ROLES, given | {"metadata": {"name": "given"}})
    return Authorizer(store)


def problem(
    authorizer: Authorizer,
    resource: Resource,
    new: Object,
    old: Object | None = None,
    *,
    namespace: str = "",
    user: UserInfo = ANN,
) -> str | None:
    """Why the user cannot write the object."""
    request = Attributes("create", GROUP, resource.plural, "", namespace, "r")
    try:
        authorizer.check_escalation(user, resource, request, new, old)
    except StatusError as failure:
        return failure.message
    return None


VERBS, RESOURCES = st.sampled_from(["get", "list", "*"]), st.sampled_from(["pods", "secrets", "pods/log", "*/log", "*"])
RULES = st.lists(
    st.builds(lambda verb, resource, names: rule(verb, resource, *names), VERBS, RESOURCES,
              st.lists(st.sampled_from(["x", "y"]), max_size=1)),
    max_size=3,
)  # fmt: skip
QUESTIONS = st.builds(
    Attributes,
    verb=st.sampled_from(["get", "list", "delete"]),
    resource=st.sampled_from(["pods", "secrets"]),
    subresource=st.sampled_from(["", "log"]),
    namespace=st.sampled_from(["a", "b"]),
    name=st.sampled_from(["", "x", "z"]),
)


@given(RULES, RULES, st.sampled_from(["", "a"]), st.lists(QUESTIONS, min_size=1, max_size=5))
def test_what_can_be_given_is_what_the_writer_has(
    own: list[Object], given_away: list[Object], namespace: str, questions: list[Attributes]
) -> None:
    """Bound by ann, a role allows bob nothing that ann could not do."""

    async def run() -> None:
        authorizer = await authorizer_with(*own, namespace=namespace, given=role(*given_away))
        if problem(authorizer, ROLE_BINDINGS, binding(), namespace="a") is not None:
            return
        theirs = await authorizer_with(*given_away, namespace="a")
        for wanted in questions:
            if theirs.authorize(ANN, wanted).allowed:
                assert authorizer.authorize(ANN, wanted).allowed

    asyncio.run(run())


async def test_administrators_may_give_everything() -> None:
    authorizer = await authorizer_with()
    assert problem(authorizer, CLUSTER_ROLES, role(*EVERYTHING), user=ADMIN) is None
    assert problem(authorizer, CLUSTER_ROLES, role(*EVERYTHING)) is not None


async def test_change_that_grants_nothing_needs_no_permission() -> None:
    """The garbage collector removes owners and finalizers of roles that it could not write."""
    authorizer = await authorizer_with()
    old = role(*EVERYTHING)
    old["metadata"] |= {"finalizers": ["f"], "ownerReferences": [{"uid": "1"}], "managedFields": [{}]}
    assert problem(authorizer, CLUSTER_ROLES, role(*EVERYTHING), old) is None
    for changed in (
        role(*EVERYTHING, rule("get", "pods")),
        role(*EVERYTHING) | {"metadata": {"name": "r", "labels": {}}},
    ):
        assert problem(authorizer, CLUSTER_ROLES, changed, old) is not None


async def test_permission_in_one_namespace_cannot_be_given_in_another() -> None:
    authorizer = await authorizer_with(rule("get", "pods"), namespace="a", given=role(rule("get", "pods")))
    for resource, new in ((ROLES, role(rule("get", "pods"))), (ROLE_BINDINGS, binding())):
        assert problem(authorizer, resource, new, namespace="a") is None
        assert problem(authorizer, resource, new, namespace="b") is not None
    assert problem(authorizer, CLUSTER_ROLE_BINDINGS, binding()) is not None


async def test_other_kinds_of_the_group_are_not_bindings() -> None:
    authorizer = await authorizer_with()
    assert (
        problem(authorizer, Resource(GROUP, "v1", "notes", "Note"), {"metadata": {"name": "n"}, "roleRef": "x"}) is None
    )


@pytest.mark.parametrize("which", ["new", "old"])
async def test_aggregation_needs_all_permissions(which: str) -> None:
    """Such a role gets the rules of any role with the right labels."""
    aggregated = role(aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    new, old = (aggregated, None) if which == "new" else (role(rule("get", "pods")), aggregated)
    few, all_rules = await authorizer_with(rule("get", "pods")), await authorizer_with(*EVERYTHING)
    assert problem(few, CLUSTER_ROLES, new, old) == (
        f'clusterroles.{GROUP} "r" is forbidden: must have cluster-admin privileges to use the aggregationRule'
    )
    assert problem(all_rules, CLUSTER_ROLES, new, old) is None


async def test_verb_escalate_allows_any_rule_of_the_named_role() -> None:
    authorizer = await authorizer_with(rule("escalate", "clusterroles", "r", group=GROUP))
    assert problem(authorizer, CLUSTER_ROLES, role(*EVERYTHING, aggregationRule={})) is None
    assert problem(authorizer, ROLES, role(*EVERYTHING), namespace="a") is not None


async def test_verb_bind_allows_the_named_role() -> None:
    authorizer = await authorizer_with(rule("bind", "clusterroles", "given", group=GROUP), given=role(*EVERYTHING))
    assert problem(authorizer, CLUSTER_ROLE_BINDINGS, binding()) is None
    assert problem(authorizer, CLUSTER_ROLE_BINDINGS, binding(name="none")) is not None
    assert problem(authorizer, ROLE_BINDINGS, binding("Role", "given"), namespace="a") is not None


async def test_role_that_does_not_exist_cannot_be_bound() -> None:
    authorizer = await authorizer_with(*EVERYTHING[1:])
    assert problem(authorizer, ROLE_BINDINGS, binding(name="none"), namespace="a") == (
        f'rolebindings.{GROUP} "none" not found'
    )


@pytest.mark.parametrize("reference", [None, {}, {"kind": "Pod", "name": "given"}])
async def test_reference_to_no_role_is_left_to_validation(reference: Object | None) -> None:
    authorizer = await authorizer_with()
    assert problem(authorizer, ROLE_BINDINGS, binding() | {"roleRef": reference}, namespace="a") is None


async def test_refusal_names_missing_rules_and_roles() -> None:
    store = await store_with(
        *(
            (CLUSTER_ROLE_BINDINGS, {"metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": name},
                                     "subjects": [{"kind": "User", "name": "ann"}]})
            for name in ("gone", "lost")
        )
    )  # fmt: skip
    message = problem(Authorizer(store), CLUSTER_ROLES, role(rule("get", "pods", "x"), rule("list", "pods", "x")))
    assert message == (
        f'clusterroles.{GROUP} "r" is forbidden: user "ann" (groups=[]) is attempting to grant RBAC permissions not '
        'currently held:\n{APIGroups:[""], Resources:["pods"], ResourceNames:["x"], Verbs:["get" "list"]}; resolution '
        f'errors: [[clusterrole.{GROUP} "gone" not found, clusterrole.{GROUP} "lost" not found]]'
    )
