"""Admission webhooks that users register.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.cluster.embedded_apiserver import tls_for_loopback
from tests.support.cluster.raw_api import APPLY, RawApi, Reply
from tests.support.waiting import eventually
from trainwright.objects.resources import MUTATING_WEBHOOK_CONFIGURATIONS, VALIDATING_WEBHOOK_CONFIGURATIONS, Resource
from trainwright.operator.serving import http_server
from trainwright.operator.serving.http_server import Address, Request, Response

RULE = {
    "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
}  # fmt: skip
Answer = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Hook:
    """A webhook server that answers as `answer` says and keeps the requests."""

    url: str
    answer: Answer
    requests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def last(self) -> dict[str, Any]:
        return self.requests[-1]


def allow(_request: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": True}


def patching(*operations: dict[str, Any]) -> Answer:
    patch = base64.b64encode(json.dumps(list(operations)).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@asynccontextmanager
async def serving(answer: Answer = allow) -> AsyncIterator[Hook]:
    hook = Hook("", answer)
    closing = asyncio.Event()

    async def handle(request: Request) -> Response:
        review = json.loads(request.body)
        hook.requests.append(review["request"])
        response = {"uid": review["request"]["uid"], **hook.answer(review["request"])}
        if response.pop("slow", False):
            await closing.wait()
        answer = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        return Response(200, json.dumps(answer).encode(), "application/json")

    async with http_server.serving("--test", Address("127.0.0.1", 0), handle, tls=tls_for_loopback()[0]) as port:
        hook.url = f"https://127.0.0.1:{port}/hook"
        try:
            yield hook
        finally:
            closing.set()


def webhook(api: RawApi, hook: Hook | str, name: str = "check.example.com", **more: Any) -> dict[str, Any]:
    url = hook if isinstance(hook, str) else hook.url
    bundle = base64.b64encode(tls_for_loopback()[1]).decode()
    return {
        "name": name,
        "rules": [RULE],
        "clientConfig": {"url": url, "caBundle": bundle},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


@asynccontextmanager
async def registered(
    api: RawApi, *webhooks: dict[str, Any], resource: Resource = VALIDATING_WEBHOOK_CONFIGURATIONS
) -> AsyncIterator[None]:
    """Registers webhooks for the block; the server knows them a moment later."""
    name = f"{api.namespace}-{resource.kind.lower()}"
    reply = await api.post(resource.path(), {"metadata": {"name": name}, "webhooks": list(webhooks)})
    assert reply.code == 201, reply.body
    try:
        yield
    finally:
        await api.delete(resource.path(name=name))


def mutating(api: RawApi, *webhooks: dict[str, Any]) -> Any:
    return registered(api, *webhooks, resource=MUTATING_WEBHOOK_CONFIGURATIONS)


async def create(api: RawApi, name: str = "c", **more: Any) -> Reply:
    return await api.post(api.path("configmaps"), {"metadata": {"name": name}, **more})


async def called(api: RawApi, *hooks: Hook) -> None:
    """Waits until the server calls the hooks."""

    async def attempt() -> bool:
        await api.send("POST", api.path("configmaps") + "?dryRun=All", {"metadata": {"name": "probe"}})
        return all(hook.requests for hook in hooks)

    await eventually(attempt, bool)


class TestValidatingWebhooks:
    async def test_rejection_is_the_answer(self, api: RawApi) -> None:
        async with serving() as hook, registered(api, webhook(api, hook)):
            await called(api, hook)
            hook.answer = lambda _: {"allowed": False, "status": {"message": "not today"}}
            refused = await create(api)
            assert (refused.code, refused.message) == (
                400, 'admission webhook "check.example.com" denied the request: not today',
            )  # fmt: skip
            assert (await api.get(api.path("configmaps", "c"))).code == 404
            status = {"code": 403, "reason": "Forbidden", "message": "no"}
            hook.answer = lambda _: {"allowed": False, "status": status}
            refused = await create(api)
            assert (refused.code, refused.body["reason"]) == (403, "Forbidden")
            hook.answer = lambda _: {"allowed": False}
            refused = await create(api)
            assert refused.message == 'admission webhook "check.example.com" denied the request without explanation'

    async def test_review_has_user_objects_and_options(self, api: RawApi) -> None:
        async with serving() as hook, registered(api, webhook(api, hook)):
            await called(api, hook)
            path = api.path("configmaps")
            headers = {"Impersonate-User": "ann", "Impersonate-Group": "system:masters"}
            body = {"metadata": {"name": "c"}}
            created = await api.send("POST", path + "?fieldManager=m", body, headers=headers)
            request = hook.last
            assert request["operation"] == "CREATE"
            assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
            assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
            assert (request["name"], request["namespace"]) == ("c", api.namespace)
            assert request["userInfo"]["username"] == "ann"
            assert request["object"]["metadata"]["uid"] == created.metadata["uid"]
            assert (request["oldObject"], request["dryRun"]) == (None, False)
            assert request["options"] == {
                "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "m",
            }  # fmt: skip
            await api.patch(path + "/c", {"data": {"a": "1"}})
            assert (hook.last["operation"], hook.last["object"]["data"]) == ("UPDATE", {"a": "1"})
            assert "data" not in hook.last["oldObject"]
            await api.delete(path + "/c")
            assert (hook.last["operation"], hook.last["object"]) == ("DELETE", None)
            assert hook.last["oldObject"]["data"] == {"a": "1"}

    async def test_update_delete_and_apply_can_be_rejected(self, api: RawApi) -> None:
        assert (await create(api)).code == 201
        async with serving() as hook, registered(api, webhook(api, hook)):
            await called(api, hook)
            hook.answer = lambda _: {"allowed": False}
            path = api.path("configmaps", "c")
            assert (await api.patch(path, {"data": {"a": "1"}})).code == 400
            assert (await api.put(path, {"metadata": {"name": "c"}, "data": {"a": "1"}})).code == 400
            assert (await api.delete(path)).code == 400
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
            applied = api.path("configmaps", "new") + "?fieldManager=m"
            assert (await api.patch(applied, body, APPLY)).code == 400
            assert "data" not in (await api.get(path)).body

    async def test_warnings_reach_the_client(self, api: RawApi) -> None:
        async with serving() as hook, registered(api, webhook(api, hook)):
            await called(api, hook)
            hook.answer = lambda _: {"allowed": True, "warnings": ["old field"]}
            assert (await create(api)).warnings == ['299 - "old field"']

    async def test_rules_and_selectors_limit_calls(self, api: RawApi) -> None:
        selector = {"matchLabels": {"checked": "yes"}}
        async with serving() as all_hook, serving(lambda _: {"allowed": False}) as hook:
            first = webhook(api, all_hook, "all.example.com")
            second = webhook(api, hook, "some.example.com", objectSelector=selector)
            cluster = webhook(api, hook, "cluster.example.com")
            cluster["rules"] = [{**cluster["rules"][0], "scope": "Cluster", "resources": ["*"]}]
            async with registered(api, first, second, cluster):
                await called(api, all_hook)
                assert (await create(api, "free")).code == 201
                labelled = {"metadata": {"name": "c", "labels": {"checked": "yes"}}}
                assert (await api.post(api.path("configmaps"), labelled)).code == 400
                assert (await api.post(api.path("secrets"), {"metadata": {"name": "s"}})).code == 201

    async def test_dry_run_is_told(self, api: RawApi) -> None:
        async with serving() as hook, registered(api, webhook(api, hook)):
            await called(api, hook)
            assert hook.last["dryRun"] is True
            assert hook.last["options"]["dryRun"] == ["All"]


class TestFailures:
    async def test_unreachable_webhook_fails_or_is_ignored(self, api: RawApi) -> None:
        async with registered(api, webhook(api, "https://127.0.0.1:1/hook")):
            refused = await eventually(
                lambda: api.send("POST", api.path("configmaps") + "?dryRun=All", {"metadata": {"name": "c"}}),
                lambda one: one.code == 500,
            )
            assert refused.body["reason"] == "InternalError"
            assert refused.message == (
                'Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: '
                'Post "https://127.0.0.1:1/hook?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
            )
        ignoring = webhook(api, "https://127.0.0.1:1/hook", "ignored.example.com", failurePolicy="Ignore")
        async with serving() as hook, registered(api, ignoring, webhook(api, hook)):
            await called(api, hook)
            await eventually(lambda: create(api), lambda one: one.code in {201, 409})

    async def test_slow_webhook_times_out(self, api: RawApi) -> None:
        async with serving() as hook, registered(api, webhook(api, hook, timeoutSeconds=1)):
            await called(api, hook)
            hook.answer = lambda _: {"allowed": True, "slow": True}
            refused = await create(api)
            assert refused.code == 500
            assert f'failed to call webhook: Post "{hook.url}?timeout=1s": context deadline exceeded' in refused.message

    async def test_answer_to_another_question_is_refused(self, api: RawApi) -> None:
        async with serving() as hook, registered(api, webhook(api, hook)):
            await called(api, hook)
            hook.answer = lambda _: {"allowed": True, "uid": "other"}
            refused = await create(api)
            assert refused.code == 500
            assert (
                f'received invalid webhook response: expected response.uid="{hook.last["uid"]}", got "other"'
                in refused.message
            )

    async def test_missing_service_is_named(self, api: RawApi) -> None:
        one = webhook(api, "")
        service = {"namespace": api.namespace, "name": "nothing", "path": "/check"}
        one["clientConfig"] = {"service": service}
        async with registered(api, one):
            refused = await eventually(
                lambda: api.send("POST", api.path("configmaps") + "?dryRun=All", {"metadata": {"name": "c"}}),
                lambda reply: reply.code == 500,
            )
            assert refused.message.endswith(
                f'Post "https://nothing.{api.namespace}.svc:443/check?timeout=10s": service "nothing" not found'
            )


class TestMutatingWebhooks:
    async def test_patch_changes_the_object(self, api: RawApi) -> None:
        add = {"op": "add", "path": "/data", "value": {"added": "1"}}
        async with serving(patching(add)) as hook, mutating(api, webhook(api, hook)):
            await called(api, hook)
            created = await create(api)
            assert (created.code, created.body["data"]) == (201, {"added": "1"})
            assert (await api.get(api.path("configmaps", "c"))).body["data"] == {"added": "1"}
            changed = await api.patch(api.path("configmaps", "c"), {"data": {"mine": "2"}})
            assert changed.body["data"] == {"added": "1"}

    async def test_validating_webhook_sees_the_patched_object(self, api: RawApi) -> None:
        add = {"op": "add", "path": "/data", "value": {"added": "1"}}
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(serving(patching(add)))
            second = await stack.enter_async_context(serving())
            await stack.enter_async_context(mutating(api, webhook(api, first)))
            await stack.enter_async_context(registered(api, webhook(api, second)))
            await called(api, first, second)
            await create(api)
            assert second.last["object"]["data"] == {"added": "1"}
            assert "data" not in first.last["object"]

    async def test_patched_object_is_validated(self, api: RawApi) -> None:
        async with serving() as hook, mutating(api, webhook(api, hook)):
            await called(api, hook)
            hook.answer = patching({"op": "add", "path": "/data", "value": {"bad key": "1"}})
            refused = await create(api)
            assert (refused.code, refused.body["reason"]) == (422, "Invalid")
            hook.answer = patching({"op": "remove", "path": "/nothing"})
            assert (await create(api)).code == 500

    async def test_earlier_webhook_is_called_again_after_a_change(self, api: RawApi) -> None:
        add = {"op": "add", "path": "/data", "value": {"added": "1"}}
        async with serving() as first, serving(patching(add)) as second:
            one = webhook(api, first, "a.example.com", reinvocationPolicy="IfNeeded")
            two = webhook(api, second, "b.example.com")
            async with mutating(api, one, two):
                await called(api, first, second)
                first.requests.clear()
                second.requests.clear()
                await create(api)
                assert [request["object"].get("data") for request in first.requests] == [None, {"added": "1"}]
                assert len(second.requests) == 1


class TestConfigurations:
    async def test_defaults(self, api: RawApi) -> None:
        name = f"{api.namespace}-defaults"
        one = webhook(api, "https://127.0.0.1:1/x")
        path = MUTATING_WEBHOOK_CONFIGURATIONS.path()
        created = await api.post(path, {"metadata": {"name": name}, "webhooks": [one]})
        await api.delete(f"{path}/{name}")
        assert created.code == 201
        [stored] = created.body["webhooks"]
        assert {key: stored[key] for key in stored.keys() - one.keys()} == {
            "failurePolicy": "Fail", "matchPolicy": "Equivalent", "objectSelector": {}, "timeoutSeconds": 10,
            "reinvocationPolicy": "Never",
        }  # fmt: skip
        assert stored["rules"][0]["scope"] == "*"
        assert created.metadata["generation"] == 1

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"name": "short"},
             'name: Invalid value: "short": should be a domain with at least three {} separated by dots'),
            ({"sideEffects": "Some"},
             'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
            ({"timeoutSeconds": 31},
             "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"),
            ({"admissionReviewVersions": ["v9"]},
             'admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1'),
            ({"clientConfig": {}}, "clientConfig: Required value: exactly one of url or service is required"),
            ({"clientConfig": {"url": "http://h/x"}},
             'clientConfig.url: Invalid value: "http": \'https\' is the only allowed URL scheme; {https}'),
            ({"rules": [{**RULE, "operations": ["GET"]}]},
             'rules[0].operations[0]: Unsupported value: "GET": supported values: {operations}'),
            ({"rules": [{**RULE, "apiGroups": ["*", "a"]}]},
             'rules[0].apiGroups: Invalid value: ["*","a"]: if \'*\' is present, must not specify other API groups'),
        ],
    )  # fmt: skip
    async def test_invalid_webhook_is_refused(self, api: RawApi, change: dict[str, Any], problem: str) -> None:
        name = f"{api.namespace}-invalid"
        body = {"metadata": {"name": name}, "webhooks": [webhook(api, "https://127.0.0.1:1/x") | change]}
        refused = await api.post(VALIDATING_WEBHOOK_CONFIGURATIONS.path(), body)
        assert refused.code == 422
        kind = "ValidatingWebhookConfiguration.admissionregistration.k8s.io"
        problem = problem.replace("{https}", "desired format: https://host[/path]").replace("{}", "segments")
        problem = problem.replace("{operations}", '"*", "CONNECT", "CREATE", "DELETE", "UPDATE"')
        assert refused.message == f'{kind} "{name}" is invalid: webhooks[0].{problem}'
